// Packs become steps, and results become first tokens.

#include <algorithm>
#include <utility>

#include "actors/prefill/prefill.h"
#include "actors/worker/ending.h"
#include "runtime/base/check.h"

namespace baton {

void Prefill::pump(Context& context) {
  if (!earlier_.over() || step_) return;
  while (next_pack(context)) {
    drop_expired(context);
    if (pack_.empty()) continue;
    const std::vector<WaitingPrompt> prompts = runnable();
    if (prompts.empty()) return;  // the pool is lent out; it comes back with Adopted and KvSent
    StepBudget budget;
    budget.tokens_max = packer_.step_tokens_max();
    budget.prefill_rows_max = static_cast<uint32_t>(options_.limits.prompts_per_pack_max);
    budget.chunking = options_.chunking;
    const StepPlan plan = plan_step(budget, {}, prompts);
    CHECK(!plan.empty());
    return submit(context, plan);
  }
}

// False when nothing waits.
bool Prefill::next_pack(Context& context) {
  if (!pack_.empty()) return true;
  const std::optional<Pack> pack = packer_.next(context.now());
  if (!pack) return false;
  ++counters_.packs[static_cast<size_t>(pack->reason)];
  for (const PackItem& item : pack->items) pack_.push_back({item.key});
  return true;
}

void Prefill::drop_expired(Context& context) {
  const std::deque<TransferId> members = pack_;  // fail() takes them out of pack_
  for (const TransferId transfer : members) {
    const auto job = jobs_.find(transfer);
    CHECK(job != jobs_.end());
    if (job->second.deadline_us > context.now()) continue;
    fail(context, job,
         {ErrorCode::deadline_exceeded, "the request's time ran out before its prompt was computed",
          0},
         false);
  }
}

// Members of the pack that have their blocks, in order; the first one for which none are left
// stops those behind it, so that it cannot starve.
std::vector<WaitingPrompt> Prefill::runnable() {
  std::vector<WaitingPrompt> prompts;
  for (const TransferId transfer : pack_) {
    PrefillJob& job = jobs_.at(transfer);
    if (job.blocks.empty()) {
      job.blocks = pool_.take(engine_.geometry().blocks_for(job.length()));
      if (job.blocks.empty()) break;
    }
    const uint32_t start = chunk_start(job);
    prompts.push_back({transfer.value, job.length() - start, job.done - start + 1});
  }
  return prompts;
}

// Log-probabilities of a chunk's first token come from the logits of the one before it, so that
// one is computed again, with the same bits.
uint32_t Prefill::chunk_start(const PrefillJob& job) const {
  return job.done > 0 && job.wants_scores() ? job.done - 1 : job.done;
}

void Prefill::submit(Context& context, const StepPlan& plan) {
  Batch batch;
  batch.step = {++last_step_};
  batch.rows.reserve(plan.prefill.size());
  step_rows_.clear();
  for (const PlannedPrompt& planned : plan.prefill) {
    const TransferId transfer{planned.key};
    PrefillJob& job = jobs_.at(transfer);
    batch.rows.push_back(make_row(transfer, job, planned.tokens));
    step_rows_.push_back({transfer, planned.tokens});
    job.phase = JobPhase::computing;
    job.in_step = true;
  }
  counters_.step_tokens += plan.tokens;
  counters_.capacity_tokens += packer_.capacity();
  step_ = batch.step;
  engine_.submit(std::move(batch), context.self());
}

BatchRow Prefill::make_row(TransferId transfer, PrefillJob& job, uint32_t tokens) {
  const uint32_t start = chunk_start(job);
  const uint32_t end = start + tokens;
  BatchRow row;
  row.key = transfer.value;
  row.tokens.assign(job.tokens.begin() + start, job.tokens.begin() + end);
  row.position = start;
  row.blocks = block_ids(job.blocks);
  row.blocks.resize(engine_.geometry().blocks_for(end));
  row.samples.clear();
  for (size_t i = 0; end == job.length() && i < job.run.choices.size(); ++i) {
    if (job.samples(i)) row.samples.push_back(job.run.choices[i]);
  }
  row.sampling = job.run.sampling;
  row.prompt_tokens = job.prompt_length();
  if (!row.samples.empty() && needs_history(job.run.sampling)) row.history = job.tokens;
  return row;
}

void Prefill::on(Context& context, const Envelope&, StepDone& done) {
  if (!step_ || done.step != *step_) {
    ++counters_.stale;
    return;
  }
  step_.reset();
  ++counters_.steps;
  const std::vector<StepRow> rows = std::exchange(step_rows_, {});
  for (const StepRow& row : rows) {
    const auto found = std::find_if(done.rows.begin(), done.rows.end(), [&](const RowResult& r) {
      return r.key == row.transfer.value;
    });
    take_result(context, row, found == done.rows.end() ? nullptr : &*found);
  }
  settle(context);
}

void Prefill::take_result(Context& context, const StepRow& row, RowResult* result) {
  const auto place = jobs_.find(row.transfer);
  CHECK(place != jobs_.end());
  PrefillJob& job = place->second;
  job.in_step = false;
  if (job.phase == JobPhase::closing) {
    if (job.over()) jobs_.erase(place);
    return;
  }
  if (!result) {
    return fail(context, place,
                {ErrorCode::internal, "the engine gave no result for the prompt", 0}, true);
  }
  if (result->numerical_error) {
    return fail(context, place,
                {ErrorCode::internal,
                 "numerical_error: the model's output for this prompt is not a number", 0},
                false);
  }
  if (job.wants_scores()) collect_scores(job, *result);
  job.done = chunk_start(job) + row.tokens;
  if (job.done < job.length()) {
    job.phase = JobPhase::waiting;  // it is still a member of the pack
    return;
  }
  std::erase(pack_, row.transfer);
  finish_prefill(context, place, *result);
}

void Prefill::collect_scores(PrefillJob& job, RowResult& result) const {
  PromptScores& scores = job.scores;
  scores.logprobs.insert(scores.logprobs.end(), result.prompt_logprobs.begin(),
                         result.prompt_logprobs.end());
  std::move(result.prompt_top.begin(), result.prompt_top.end(), std::back_inserter(scores.top));
}

// The prompt is computed: first tokens go straight to the client's streams, and unless all choices
// are finished with theirs, it is handed over.
void Prefill::finish_prefill(Context& context, Jobs::iterator place, RowResult& result) {
  PrefillJob& job = place->second;
  const Routing routing{job.request, job.epoch, 0, kNever};
  if (job.wants_scores()) {
    const size_t scored = job.prompt_length() - 1;
    if (job.scores.logprobs.size() > scored) job.scores.logprobs.resize(scored);
    if (job.scores.top.size() > scored) job.scores.top.resize(scored);
    context.send(job.run.gateway, job.scores, routing);
  }
  make_first(job, result);
  job.run.usage = usage_of(context, job);
  Tokens tokens;
  Finish finish = Finish::stop;
  bool goes_on = false;
  for (const TokenEntry& first : job.first) {
    if (first.has_token || first.finish != Finish::none) tokens.entries.push_back(first);
    goes_on = goes_on || first.finish == Finish::none;
    finish = std::max(finish, first.finish);
  }
  if (!tokens.entries.empty()) context.send(job.run.gateway, tokens, routing);
  if (goes_on) {
    job.phase = JobPhase::handing;
    prepare_pieces(context, job);
    return start_sending(context, place);
  }
  ++counters_.finished_here;
  context.send(joining_.scheduler(), PrefillDone{place->first, job.run.usage, finish}, routing);
  jobs_.erase(place);
}

// One entry per choice that runs, as Adopt hands them over.
void Prefill::make_first(PrefillJob& job, RowResult& result) {
  auto sample = result.samples.begin();
  for (size_t i = 0; i < job.run.choices.size(); ++i) {
    TokenEntry& first = job.first.emplace_back();
    first.request = job.request;
    first.epoch = job.epoch;
    first.choice = job.run.choices[i];
    first.seq = static_cast<uint32_t>(job.run.committed[i].size());
    first.has_token = job.samples(i);
    if (job.only_scores()) first.finish = Finish::length;
    if (!first.has_token) continue;
    CHECK(sample != result.samples.end() && sample->choice == first.choice);
    first.id = sample->token;
    first.logprob = sample->logprob;
    first.top = std::move(sample->top);
    first.finish = finish_after(job.run.stops, first.id, first.seq + 1, job.length() + 1,
                                engine_.context_max());
    ++sample;
  }
}

Usage Prefill::usage_of(Context& context, const PrefillJob& job) const {
  Usage usage = job.run.usage;
  usage.prompt_tokens = job.prompt_length();
  usage.completion_tokens = 0;
  for (const TokenEntry& first : job.first) {
    usage.completion_tokens += first.seq + (first.has_token ? 1 : 0);
  }
  usage.prefill_us = context.now() - job.arrived_us;
  usage.prefill_rank = context.self().rank;
  usage.weights_version = options_.weights_version;
  return usage;
}

}  // namespace baton
