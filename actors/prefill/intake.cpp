// What arrives is checked here, before anything is begun for it.

#include <algorithm>
#include <utility>

#include "actors/prefill/prefill.h"
#include "actors/worker/deadline.h"

namespace baton {
namespace {

Refusal context_fault(uint32_t tokens, uint32_t context_max) {
  return {ErrorCode::context_too_long,
          "the prompt has " + std::to_string(tokens) + " tokens, but the context holds " +
              std::to_string(context_max) + "; shorten the prompt",
          0};
}

}  // namespace

std::optional<Refusal> Prefill::refuse_now(const Envelope& from, const Run& run) const {
  const Micros again = options_.limits.retry_after_us / kMillisecond;
  if (cancelled_.covers(from.request, from.epoch)) {
    return Refusal{ErrorCode::cancelled, "the request was cancelled before it arrived here", 0};
  }
  if (dead_.covers(run.target)) {
    return Refusal{ErrorCode::unavailable, "the decode worker of the request is gone", again};
  }
  if (joining_.draining() || !earlier_.over()) {
    return Refusal{ErrorCode::unavailable, "this prefill instance takes no new prompts", again};
  }
  if (packer_.size() + pack_.size() >= options_.queue_max) {
    return Refusal{ErrorCode::busy,
                   "the queue of this prefill instance is full (" +
                       std::to_string(options_.queue_max) + " prompts)",
                   again};
  }
  const bool outdated = std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& entry) {
    return entry.second.request == from.request && entry.second.epoch > from.epoch;
  });
  if (outdated) return Refusal{ErrorCode::stale, "a later life of the request runs here", 0};
  return std::nullopt;
}

// What is wrong with the request itself, so that no other instance could run it either.
std::optional<Refusal> Prefill::find_fault(const Run& run) const {
  if (run.ids.empty()) {
    return Refusal{ErrorCode::invalid_argument, "the prompt is empty; give one token or more", 0};
  }
  if (run.choices.empty() || run.committed.size() != run.choices.size()) {
    return Refusal{ErrorCode::internal,
                   "the scheduler named " + std::to_string(run.choices.size()) +
                       " choices and what is committed of " + std::to_string(run.committed.size()),
                   0};
  }
  const bool several = run.choices.size() > 1;
  const size_t committed = several ? 0 : run.committed[0].size();
  const auto tokens = static_cast<uint32_t>(run.ids.size() + committed);
  if (tokens > engine_.context_max()) return context_fault(tokens, engine_.context_max());
  const auto vocabulary = static_cast<TokenId>(engine_.vocabulary());
  const auto known = [&](TokenId id) { return id >= 0 && id < vocabulary; };
  const auto all_known = [&](const std::vector<TokenId>& ids) {
    return std::all_of(ids.begin(), ids.end(), known);
  };
  if (!all_known(run.ids) || !std::all_of(run.committed.begin(), run.committed.end(), all_known)) {
    return Refusal{ErrorCode::invalid_argument,
                   "a token id is not in [0, " + std::to_string(vocabulary) + ")", 0};
  }
  const KvGeometry& geometry = engine_.geometry();
  const uint32_t blocks = geometry.blocks_for(tokens);
  if (blocks > pool_.size()) {
    return Refusal{ErrorCode::unsupported,
                   "the prompt needs " + std::to_string(blocks) +
                       " KV blocks, but the pool of this instance has " +
                       std::to_string(pool_.size()),
                   0};
  }
  const bool needs_target = committed + 1 < run.stops.max_tokens;
  if (run.from_token > tokens || run.from_token % geometry.block_tokens != 0 ||
      (needs_target &&
       run.target_blocks.size() != blocks - run.from_token / geometry.block_tokens)) {
    return Refusal{ErrorCode::internal,
                   "the target named " + std::to_string(run.target_blocks.size()) +
                       " blocks for positions " + std::to_string(run.from_token) + " to " +
                       std::to_string(tokens) + ", which need another number",
                   0};
  }
  return std::nullopt;
}

void Prefill::on(Context& context, const Envelope& from, Run& run) {
  const Routing routing{from.request, from.epoch, from.correlation, kNever};
  if (jobs_.count(run.transfer) > 0) {  // said twice: once is enough
    ++counters_.stale;
    return;
  }
  if (std::optional<Refusal> refusal = refuse_now(from, run)) {
    ++counters_.refused;
    context.send(joining_.scheduler(), RunRefused{run.transfer, std::move(*refusal)}, routing);
    return;
  }
  if (std::optional<Refusal> fault = find_fault(run)) {
    ++counters_.failed;
    context.send(joining_.scheduler(), PrefillFailed{run.transfer, std::move(*fault), false},
                 routing);
    return;
  }
  if (from.epoch.value > 0) close_lives(from.request, {from.epoch.value - 1});
  ++counters_.runs;
  PrefillJob& job = jobs_[run.transfer];
  job.request = from.request;
  job.epoch = from.epoch;
  job.tokens = run.ids;
  if (run.choices.size() == 1) {
    job.tokens.insert(job.tokens.end(), run.committed[0].begin(), run.committed[0].end());
  }
  job.arrived_us = context.now();
  job.deadline_us = deadline_after(context.now(), from.remaining_us);
  job.run = std::move(run);
  packer_.add({job.run.transfer.value, job.length(), job.arrived_us});
  settle(context);
}

}  // namespace baton
