// The loop: every running sequence goes one token further with each step, or catches up.

#include <algorithm>
#include <utility>

#include "actors/decode/decode.h"
#include "actors/worker/ending.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

// A row's key names the slot and its owner: a result for an earlier owner is never credited.
constexpr uint64_t row_key(SlotLease slot) {
  return uint64_t{slot.generation.value} << 32 | slot.slot.value;
}
constexpr SlotLease slot_of_key(uint64_t key) {
  return {{static_cast<uint32_t>(key)}, {static_cast<uint32_t>(key >> 32)}};
}

}  // namespace

void Decode::pump(Context& context) {
  if (!earlier_.over() || step_) return;
  plan_rows(context);
  if (ready_.empty() && behind_.empty()) {
    // Whoever has nothing left to compute waits for the look at it.
    if (!check(context)) return;
    send_deliveries(context);
    plan_rows(context);
    if (ready_.empty() && behind_.empty()) return;
  }
  submit(context, plan_step(budget(), ready_, behind_));
}

StepBudget Decode::budget() const {
  StepBudget budget;
  budget.tokens_max = step_tokens_max_;
  budget.decode_rows_max = slots_.size();
  budget.prefill_rows_max = slots_.size();
  // Two at least: a chunk whose first token is scored begins with the one before it.
  budget.prefill_tokens_max = std::max(options_.catch_up_tokens, 2u);
  budget.prefill_tokens_kept =
      std::min(budget.prefill_tokens_max, std::max(step_tokens_max_ / 2, 2u));
  budget.chunking = true;
  return budget;
}

// Sequences that can go on, each with the blocks that it needs. Blocks go to the oldest first.
void Decode::plan_rows(Context& context) {
  ready_.clear();
  behind_.clear();
  std::vector<uint64_t>& slots = ready_;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (sequences_[slot]) slots.push_back(slot);
  }
  std::sort(slots.begin(), slots.end(), [&](uint64_t a, uint64_t b) {
    const Sequence& x = *sequences_[a];
    const Sequence& y = *sequences_[b];
    return x.age != y.age ? x.age < y.age : x.choice < y.choice;
  });
  std::erase_if(slots, [&](uint64_t slot) {
    if (!sequences_[slot]) return true;  // it made room for an older one
    if (!may_go_on(*sequences_[slot])) return true;
    if (paused(*sequences_[slot])) {
      ++counters_.paused;
      return true;
    }
    return !grow(context, static_cast<uint32_t>(slot));
  });
  std::erase_if(slots, [&](uint64_t slot) {
    if (!sequences_[slot]) return true;  // its request made room when a later choice was asked to
    const Sequence& sequence = *sequences_[slot];
    if (sequence.missing() == 1 && !sequence.scoring) return false;
    const uint32_t start = row_start(sequence);
    behind_.push_back({slot, sequence.size() - start, sequence.computed - start + 1});
    return true;
  });
  std::sort(slots.begin(), slots.end(), [&](uint64_t a, uint64_t b) {
    const Sequence& x = *sequences_[a];
    const Sequence& y = *sequences_[b];
    return x.last_step != y.last_step ? x.last_step < y.last_step
           : x.age != y.age           ? x.age < y.age
                                      : x.choice < y.choice;
  });
}

bool Decode::paused(const Sequence& sequence) const {
  const RetainedStream* stream = retained_.find(sequence.request, sequence.choice, sequence.epoch);
  CHECK(stream != nullptr);
  return stream->ahead() > options_.limits.stream_ahead_max;
}

// A sequence does not run past the end that is known beforehand, whoever looks at it when.
bool Decode::may_go_on(const Sequence& sequence) const {
  return sequence.unchecked.empty() || (sequence.generated() < sequence.stops.max_tokens &&
                                        sequence.size() < engine_.context_max());
}

BatchRow Decode::make_row(const Sequence& sequence) const {
  const uint32_t start = row_start(sequence);
  const uint32_t end = sequence.computed + sequence.in_step_tokens;
  BatchRow row;
  row.key = row_key(sequence.slot);
  row.tokens.assign(sequence.tokens.begin() + start, sequence.tokens.begin() + end);
  row.position = start;
  row.blocks = sequence.block_table;
  row.samples.clear();
  if (end == sequence.size() && !sequence.only_scores()) row.samples.push_back(sequence.choice);
  row.sampling = sequence.sampling;
  if (!sequence.scoring) row.sampling.prompt_logprobs = -1;
  row.prompt_tokens = sequence.prompt_tokens;
  if (!row.samples.empty() && needs_history(sequence.sampling)) row.history = sequence.tokens;
  return row;
}

void Decode::submit(Context& context, const StepPlan& plan) {
  CHECK(!plan.empty());
  Batch batch;
  batch.step = {++last_step_};
  batch.rows.reserve(plan.decode.size() + plan.prefill.size());
  take_copies(batch);
  for (const uint64_t slot : plan.decode) add_row(batch, static_cast<uint32_t>(slot), 1);
  for (const PlannedPrompt& planned : plan.prefill) {
    const auto slot = static_cast<uint32_t>(planned.key);
    const Sequence& sequence = *sequences_[slot];
    add_row(batch, slot, planned.tokens - (sequence.computed - row_start(sequence)));
    counters_.caught_up += planned.tokens;
  }
  counters_.step_rows += batch.rows.size();
  counters_.slot_steps += slots_.size();
  step_ = batch.step;
  engine_.submit(std::move(batch), context.self());
}

void Decode::add_row(Batch& batch, uint32_t slot, uint32_t tokens) {
  Sequence& sequence = *sequences_[slot];
  sequence.in_step = true;
  sequence.in_step_tokens = tokens;
  sequence.last_step = last_step_;
  batch.rows.push_back(make_row(sequence));
}

// All of them, though the sequence may not be in the step: whoever else has the block writes it.
void Decode::take_copies(Batch& batch) {
  for (Copy& copy : copies_) {
    batch.copies.push_back({copy.from.id(), copy.to});
    copied_.push_back(std::move(copy.from));
    for (std::optional<Sequence>& sequence : sequences_) {
      if (!sequence) continue;
      const std::vector<BlockId>& table = sequence->block_table;
      if (std::find(table.begin(), table.end(), copy.to) != table.end()) sequence->in_step = true;
    }
  }
  copies_.clear();
}

void Decode::on(Context& context, const Envelope&, StepDone& done) {
  if (!step_ || done.step != *step_) {
    ++counters_.stale;
    return;
  }
  ++counters_.steps;
  copied_.clear();
  for (RowResult& result : done.rows) take_result(context, result);
  if (++steps_unchecked_ >= options_.min_decode_steps) check(context);
  send_deliveries(context);  // before the slots' ends are known to anyone
  step_.reset();
  for (std::optional<Sequence>& sequence : sequences_) {
    if (sequence) sequence->in_step = false;
  }
  for (Freed& freed : after_step_) send_freed(context, std::move(freed));
  after_step_.clear();
  settle(context);
}

void Decode::take_result(Context& context, RowResult& result) {
  const SlotLease lease = slot_of_key(result.key);
  const bool running =
      slots_.holds(lease) && sequences_[lease.slot.value] && sequences_[lease.slot.value]->in_step;
  if (!running) {
    ++counters_.discarded;
    return;
  }
  Sequence& sequence = *sequences_[lease.slot.value];
  if (result.numerical_error) {
    log_warning("numerical_error: a sequence's logits are not numbers; it ends");
    break_off(context, sequence, Finish::error);
    return;
  }
  const bool last = sequence.in_step_tokens == sequence.missing();
  sequence.computed += sequence.in_step_tokens;
  if (sequence.scoring) take_scores(context, sequence, result);
  if (!last) return;
  if (sequence.only_scores()) return break_off(context, sequence, Finish::length);
  RowSample& chosen = result.samples.at(0);
  sequence.tokens.push_back(chosen.token);
  sequence.unchecked.push_back(std::move(chosen));
}

void Decode::take_scores(Context& context, Sequence& sequence, RowResult& result) {
  PromptScores& scores = sequence.scores;
  scores.logprobs.insert(scores.logprobs.end(), result.prompt_logprobs.begin(),
                         result.prompt_logprobs.end());
  std::move(result.prompt_top.begin(), result.prompt_top.end(), std::back_inserter(scores.top));
  if (sequence.computed < sequence.prompt_tokens) return;
  const size_t scored = sequence.prompt_tokens - 1;
  scores.logprobs.resize(scored);  // a row may hold tokens behind the prompt too
  if (scores.top.size() > scored) scores.top.resize(scored);
  if (scored > 0) {
    context.send(sequence.gateway, scores, {sequence.request, sequence.epoch, 0, kNever});
  }
  sequence.scoring = false;
  sequence.scores = {};
}

}  // namespace baton
