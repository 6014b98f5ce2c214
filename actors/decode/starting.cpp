// From a hand-off record to running sequences: one per choice, which share the prompt's blocks.

#include <algorithm>
#include <iterator>
#include <utility>

#include "actors/decode/decode.h"
#include "runtime/base/check.h"

namespace baton {

void Decode::activate(Context& context, Incoming& incoming) {
  ++counters_.adopted;
  Adopt& adopt = *incoming.adopt;
  const Routing routing{incoming.request, incoming.epoch, 0, kNever};
  if (!adopt.prompt_logprobs.empty()) {
    const PromptScores scores{std::move(adopt.prompt_logprobs), std::move(adopt.prompt_top),
                              incoming.weights};
    context.send(adopt.gateway, scores, routing);
  }
  const uint64_t age = ++last_age_;
  std::vector<uint32_t> started;
  for (size_t i = 0; i < adopt.first.size(); ++i) {
    TokenEntry& first = adopt.first[i];
    first.kept = true;
    retained_.open(incoming.request, first.choice, incoming.epoch, adopt.gateway, first.seq);
    if (first.has_token) retained_.add(first);
    if (first.finish != Finish::none) continue;
    start_sequence(incoming, i, age);
    started.push_back(incoming.slots[i].slot.value);
  }
  share_out(incoming, started);
  for (const uint32_t slot : started) {
    start_keeping(*sequences_[slot], incoming.prefix);
  }
  Usage usage = adopt.usage;
  usage.decode_rank = context.self().rank;
  usage.transfer_us = incoming.posted ? context.now() - incoming.posted_us : 0;
  const Adopted adopted{incoming.transfer, usage};
  context.send(joining_.scheduler(), adopted, routing);
  context.send(incoming.source, adopted, routing);
  end_at_once(context, incoming);
}

// What came is kept from the start, what is computed here as it fills blocks.
void Decode::start_keeping(Sequence& sequence, const PrefixNames& names) {
  if (!names.named() || names.weights_version != sequence.weights) return;
  sequence.prefix_root = names.root;
  keep_blocks(sequence);
}

// In the slot of the reservation, with what it says of the request.
Sequence& Decode::place_sequence(const Incoming& incoming, size_t index, uint64_t age) {
  std::optional<Sequence>& place = sequences_[incoming.slots[index].slot.value];
  CHECK(!place);
  Sequence& sequence = place.emplace();
  sequence.request = incoming.request;
  sequence.epoch = incoming.epoch;
  sequence.transfer = incoming.transfer;
  sequence.slot = incoming.slots[index];
  sequence.age = age;
  sequence.weights = incoming.weights;
  return sequence;
}

void Decode::start_sequence(const Incoming& incoming, size_t index, uint64_t age) {
  const Adopt& adopt = *incoming.adopt;
  const TokenEntry& first = adopt.first[index];
  const std::vector<TokenId>& committed = adopt.committed[index];
  Sequence& sequence = place_sequence(incoming, index, age);
  sequence.gateway = adopt.gateway;
  sequence.choice = first.choice;
  sequence.tokens = adopt.prompt;
  sequence.tokens.insert(sequence.tokens.end(), committed.begin(), committed.end());
  if (first.has_token) sequence.tokens.push_back(first.id);
  sequence.prompt_tokens = static_cast<uint32_t>(adopt.prompt.size());
  sequence.computed = std::min(incoming.tokens, sequence.size() - 1);
  sequence.sampling = adopt.sampling;
  sequence.sampling.prompt_logprobs = -1;  // the transfer brought them
  sequence.stops = adopt.stops;
}

// The blocks that came belong to all of them; what is held beside these, to each its part.
void Decode::share_out(Incoming& incoming, const std::vector<uint32_t>& slots) {
  const uint32_t brought = engine_.geometry().blocks_for(incoming.tokens);
  std::vector<BlockLease> blocks = std::exchange(incoming.blocks, {});
  size_t sharers = slots.size();
  for (const uint32_t slot : slots) {
    Sequence& sequence = *sequences_[slot];
    for (uint32_t i = 0; i < brought; ++i) {
      sequence.blocks.push_back(sharers > 1 ? blocks[i].share() : std::move(blocks[i]));
    }
    sequence.block_table = block_ids(sequence.blocks);
    const size_t part = (blocks.size() - brought + sharers - 1) / sharers;
    for (size_t i = 0; i < part; ++i) {
      sequence.spare.push_back(std::move(blocks.back()));
      blocks.pop_back();
    }
    --sharers;
  }
}

std::optional<Refusal> Decode::find_fault(const Incoming& incoming, const Start& start) const {
  const size_t committed = start.committed.empty() ? 0 : start.committed[0].size();
  if (incoming.slots.size() != 1 || start.committed.size() > 1) {
    return Refusal{ErrorCode::unsupported,
                   "the request asks for several choices, but a prompt that is computed here is "
                   "answered once; ask for n = 1",
                   0};
  }
  if (start.ids.empty() || start.ids.size() + committed != incoming.tokens) {
    return Refusal{ErrorCode::bad_frame,
                   "the prompt and what is committed have " +
                       std::to_string(start.ids.size() + committed) +
                       " tokens, the reservation has " + std::to_string(incoming.tokens),
                   0};
  }
  if (start.sampling.prompt_logprobs >= 0 && incoming.from_token > 0) {
    return Refusal{ErrorCode::internal,
                   "a prompt that is to be scored was looked up in the prefix cache", 0};
  }
  const auto vocabulary = static_cast<TokenId>(engine_.vocabulary());
  const auto known = [&](TokenId id) { return id >= 0 && id < vocabulary; };
  if (!std::all_of(start.ids.begin(), start.ids.end(), known)) {
    return Refusal{ErrorCode::invalid_argument,
                   "a token id is not in [0, " + std::to_string(vocabulary) + ")", 0};
  }
  return std::nullopt;
}

// Nothing comes from elsewhere: the prompt is computed here, beside what decodes.
void Decode::on(Context& context, const Envelope& from, Start& start) {
  const auto place = incoming_.find(start.transfer);
  if (place == incoming_.end() || place->second.closing || !place->second.local ||
      place->second.epoch != from.epoch) {
    ++counters_.stale;
    if (runs(start.transfer)) return;  // said twice
    return context.send(
        joining_.scheduler(),
        AdoptFailed{start.transfer,
                    {ErrorCode::not_found, "the reservation is not here (any more)", 0}},
        {from.request, from.epoch, from.correlation, kNever});
  }
  if (std::optional<Refusal> fault = find_fault(place->second, start)) {
    fail_transfer(context, place, *fault);
  } else {
    start_local(context, place->second, start);
    incoming_.erase(place);
  }
  settle(context);
}

void Decode::start_local(Context& context, Incoming& incoming, Start& start) {
  ++counters_.local_prefills;
  Sequence& sequence = place_sequence(incoming, 0, ++last_age_);
  sequence.gateway = start.gateway;
  sequence.tokens = std::move(start.ids);
  sequence.prompt_tokens = sequence.size();
  if (!start.committed.empty()) {
    sequence.tokens.insert(sequence.tokens.end(), start.committed[0].begin(),
                           start.committed[0].end());
  }
  sequence.computed = incoming.from_token;
  sequence.kept_blocks = incoming.from_token / engine_.geometry().block_tokens;
  sequence.sampling = std::move(start.sampling);
  sequence.stops = std::move(start.stops);
  sequence.scoring = sequence.sampling.prompt_logprobs >= 0;
  const auto first_spare = incoming.blocks.begin() + engine_.geometry().blocks_for(incoming.tokens);
  std::move(first_spare, incoming.blocks.end(), std::back_inserter(sequence.spare));
  incoming.blocks.erase(first_spare, incoming.blocks.end());
  sequence.blocks = std::move(incoming.blocks);
  sequence.block_table = block_ids(sequence.blocks);
  start_keeping(sequence, incoming.prefix);
  retained_.open(sequence.request, 0, sequence.epoch, sequence.gateway, sequence.generated());

  sequence.local = true;
  sequence.started_us = context.now();
  sequence.usage = std::move(start.usage);
  sequence.usage.prefill_rank = sequence.usage.decode_rank = context.self().rank;
  sequence.usage.prompt_tokens = sequence.prompt_tokens;
  sequence.usage.cached_tokens = std::min(sequence.computed, sequence.prompt_tokens);
  sequence.usage.weights_version = incoming.weights;
  context.send(joining_.scheduler(), Adopted{sequence.transfer, sequence.usage},
               {sequence.request, sequence.epoch, 0, kNever});
}

// The prompt is computed: how long that took is known now.
void Decode::report_local(Context& context, Sequence& sequence) {
  sequence.local = false;
  sequence.usage.prefill_us = context.now() - sequence.started_us;
  context.send(joining_.scheduler(), Adopted{sequence.transfer, sequence.usage},
               {sequence.request, sequence.epoch, 0, kNever});
}

// Choices that were finished with the token that prefill sampled need no slot.
void Decode::end_at_once(Context& context, const Incoming& incoming) {
  for (size_t i = 0; i < incoming.slots.size(); ++i) {
    const TokenEntry& first = incoming.adopt->first[i];
    if (first.finish == Finish::none) continue;
    retained_.end(incoming.request, first.choice, incoming.epoch, context.now());
    send_freed(
        context,
        {incoming.request, incoming.epoch, incoming.slots[i], first.choice, first.finish, {}});
  }
}

}  // namespace baton
