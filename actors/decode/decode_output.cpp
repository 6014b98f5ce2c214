// What was decoded goes to the gateways, and sequences come to their end.

#include <algorithm>
#include <utility>

#include "actors/decode/decode.h"
#include "actors/worker/ending.h"
#include "runtime/base/check.h"

namespace baton {

// Looks at all tokens that were chosen since the last look. False: there was none.
bool Decode::check(Context& context) {
  steps_unchecked_ = 0;
  bool any = false;
  for (std::optional<Sequence>& sequence : sequences_) {
    if (sequence && !sequence->unchecked.empty()) any = check_sequence(context, *sequence) || any;
  }
  return any;
}

// Always true. What was computed after the end is thrown away.
bool Decode::check_sequence(Context& context, Sequence& sequence) {
  std::vector<RowSample> samples = std::exchange(sequence.unchecked, {});
  uint32_t generated = sequence.generated() - static_cast<uint32_t>(samples.size());
  for (size_t i = 0; i < samples.size(); ++i) {
    RowSample& sample = samples[i];
    TokenEntry entry = entry_of(sequence, generated++);
    entry.id = sample.token;
    entry.logprob = sample.logprob;
    entry.top = std::move(sample.top);
    entry.finish = finish_after(sequence.stops, sample.token, generated,
                                sequence.prompt_tokens + generated, engine_.context_max());
    retained_.add(entry);
    deliver(sequence.gateway, entry);
    ++counters_.tokens;
    if (entry.finish == Finish::none) continue;
    counters_.overshoot += samples.size() - i - 1;
    end(context, sequence.slot.slot.value, entry.finish);
    break;
  }
  return true;
}

TokenEntry Decode::entry_of(const Sequence& sequence, uint32_t seq) const {
  TokenEntry entry;
  entry.request = sequence.request;
  entry.choice = sequence.choice;
  entry.epoch = sequence.epoch;
  entry.seq = seq;
  entry.kept = true;
  entry.weights_version = sequence.weights;
  return entry;
}

// Ends a sequence without a further token.
void Decode::break_off(Context& context, Sequence& sequence, Finish finish) {
  if (!sequence.unchecked.empty()) {
    const SlotLease slot = sequence.slot;
    check_sequence(context, sequence);
    if (!slots_.holds(slot) || !sequences_[slot.slot.value]) return;  // it had ended before
  }
  TokenEntry entry = entry_of(sequence, sequence.generated());
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
  drop_copies(sequence.blocks);
  Freed freed{sequence.request, sequence.epoch, sequence.slot,
              sequence.choice,  finish,         std::move(sequence.blocks)};
  std::move(sequence.spare.begin(), sequence.spare.end(), std::back_inserter(freed.blocks));
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
               SlotFreed{freed.slot, freed.choice, slots_.free(), cache_.available(), freed.finish},
               {freed.request, freed.epoch, 0, kNever});
}

}  // namespace baton
