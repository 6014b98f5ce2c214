// The loop: every running sequence goes one token further with each step.

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
  if (ready_.empty()) return;
  StepBudget budget;
  budget.tokens_max = step_tokens_max_;
  budget.decode_rows_max = slots_.size();
  submit(context, plan_step(budget, ready_, {}));
}

// Slots that can go on, those first that waited longest. Blocks go to the oldest sequences first.
void Decode::plan_rows(Context& context) {
  ready_.clear();
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (sequences_[slot]) ready_.push_back(slot);
  }
  std::sort(ready_.begin(), ready_.end(),
            [&](uint64_t a, uint64_t b) { return sequences_[a]->age < sequences_[b]->age; });
  std::erase_if(ready_, [&](uint64_t slot) {
    if (!sequences_[slot]) return true;  // it made room for an older one
    if (paused(*sequences_[slot])) {
      ++counters_.paused;
      return true;
    }
    return !grow(context, static_cast<uint32_t>(slot));
  });
  std::sort(ready_.begin(), ready_.end(), [&](uint64_t a, uint64_t b) {
    const Sequence& x = *sequences_[a];
    const Sequence& y = *sequences_[b];
    return x.last_step != y.last_step ? x.last_step < y.last_step : x.age < y.age;
  });
}

bool Decode::paused(const Sequence& sequence) const {
  const RetainedStream* stream = retained_.find(sequence.request, sequence.choice, sequence.epoch);
  CHECK(stream != nullptr);
  return stream->ahead() > options_.limits.stream_ahead_max;
}

// The block for the next position, if it is not there yet. False: the sequence has to wait, or it
// is gone.
bool Decode::grow(Context& context, uint32_t slot) {
  const uint32_t needed = engine_.geometry().blocks_for(sequences_[slot]->position + 1);
  while (sequences_[slot]->blocks.size() < needed) {
    std::vector<BlockLease> block = pool_.take(1);
    if (block.empty()) {
      if (!make_room(context, slot)) return false;
      continue;
    }
    sequences_[slot]->block_table.push_back(block[0].id());
    sequences_[slot]->blocks.push_back(std::move(block[0]));
  }
  return true;
}

// The youngest sequence loses its blocks and is computed again later; the oldest never does, so
// somebody always gets to the end. False: there was nobody to take from.
bool Decode::make_room(Context& context, uint32_t needy) {
  uint32_t youngest = needy;
  uint32_t others = 0;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    if (!sequences_[slot] || slot == needy) continue;
    ++others;
    if (sequences_[slot]->age > sequences_[youngest]->age) youngest = slot;
  }
  if (youngest != needy || others > 0) {
    preempt(context, *sequences_[youngest]);
    return youngest != needy;
  }
  if (!incoming_.empty() || earlier_.blocks() > 0) return false;  // these blocks will come back
  log_warning("a sequence needs more KV blocks than the pool has; it ends with an error");
  break_off(context, *sequences_[needy], Finish::error);
  return false;
}

void Decode::preempt(Context& context, Sequence& sequence) {
  ++counters_.preempted;
  retained_.drop(sequence.request, sequence.epoch);
  context.send(joining_.scheduler(), Preempted{sequence.slot},
               {sequence.request, sequence.epoch, 0, kNever});
  end(context, sequence.slot.slot.value, Finish::none);
}

BatchRow Decode::make_row(const Sequence& sequence) const {
  BatchRow row;
  row.key = row_key(sequence.slot);
  row.tokens = {sequence.last_token};
  row.position = sequence.position;
  row.blocks = sequence.block_table;
  row.choice = sequence.choice;
  row.sampling = sequence.sampling;
  row.prompt_tokens = sequence.prompt_tokens;
  row.history = sequence.history;  // empty unless penalties need it
  return row;
}

void Decode::submit(Context& context, const StepPlan& plan) {
  CHECK(!plan.decode.empty());
  Batch batch;
  batch.step = {++last_step_};
  batch.rows.reserve(plan.decode.size());
  for (const uint64_t slot : plan.decode) {
    Sequence& sequence = *sequences_[slot];
    batch.rows.push_back(make_row(sequence));
    sequence.in_step = true;
    sequence.last_step = last_step_;
  }
  counters_.step_rows += plan.decode.size();
  counters_.slot_steps += slots_.size();
  step_ = batch.step;
  engine_.submit(std::move(batch), context.self());
}

void Decode::on(Context& context, const Envelope&, StepDone& done) {
  if (!step_ || done.step != *step_) {
    ++counters_.stale;
    return;
  }
  ++counters_.steps;
  for (RowResult& result : done.rows) take_result(context, result);
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
  take_token(context, sequence, result);
}

void Decode::take_token(Context& context, Sequence& sequence, RowResult& result) {
  ++sequence.position;
  ++sequence.generated;
  sequence.last_token = result.token;
  if (!sequence.history.empty()) sequence.history.push_back(result.token);
  TokenEntry entry;
  entry.request = sequence.request;
  entry.choice = sequence.choice;
  entry.epoch = sequence.epoch;
  entry.seq = sequence.generated - 1;
  entry.id = result.token;
  entry.logprob = result.logprob;
  entry.top = std::move(result.top);
  entry.finish = finish_after(sequence.stops, result.token, sequence.generated,
                              sequence.position + 1, engine_.context_max());
  retained_.add(entry);
  deliver(sequence.gateway, entry);
  ++counters_.tokens;
  if (entry.finish != Finish::none) end(context, sequence.slot.slot.value, entry.finish);
}

// Ends a sequence without a further token.
void Decode::break_off(Context& context, Sequence& sequence, Finish finish) {
  TokenEntry entry;
  entry.request = sequence.request;
  entry.choice = sequence.choice;
  entry.epoch = sequence.epoch;
  entry.seq = sequence.generated;
  entry.finish = finish;
  entry.has_token = false;
  retained_.add(entry);
  deliver(sequence.gateway, entry);
  if (!step_) send_deliveries(context);
  end(context, sequence.slot.slot.value, finish);
}

void Decode::deliver(const ActorId& gateway, const TokenEntry& entry) {
  auto place = std::find_if(deliveries_.begin(), deliveries_.end(),
                            [&](const Delivery& d) { return d.gateway == gateway; });
  if (place == deliveries_.end()) place = deliveries_.insert(place, {gateway, {}});
  place->message.entries.push_back(entry);
}

void Decode::send_deliveries(Context& context) {
  constexpr size_t kGatewaysKept = 16;  // their buffers are used again
  for (Delivery& delivery : deliveries_) {
    if (delivery.message.entries.empty()) continue;
    context.send(delivery.gateway, delivery.message);
    delivery.message.entries.clear();
  }
  if (deliveries_.size() > kGatewaysKept) deliveries_.clear();
}

void Decode::end(Context& context, uint32_t slot, Finish finish) {
  Sequence& sequence = *sequences_[slot];
  retained_.end(sequence.request, sequence.choice, sequence.epoch, context.now());
  Freed freed{sequence.request, sequence.epoch, sequence.slot,
              sequence.choice,  finish,         std::move(sequence.blocks)};
  const bool written = sequence.in_step;
  sequences_[slot].reset();
  if (written) {
    after_step_.push_back(std::move(freed));
  } else {
    send_freed(context, std::move(freed));
  }
}

void Decode::send_freed(Context& context, Freed freed) {
  freed.blocks.clear();
  slots_.give_back(freed.slot);
  context.send(joining_.scheduler(),
               SlotFreed{freed.slot, freed.choice, slots_.free(), pool_.free(), freed.finish},
               {freed.request, freed.epoch, 0, kNever});
}

}  // namespace baton
