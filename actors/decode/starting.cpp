// From a hand-off record to running sequences: one per choice, which share the prompt's blocks.

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
  Usage usage = adopt.usage;
  usage.decode_rank = context.self().rank;
  usage.transfer_us = incoming.posted ? context.now() - incoming.posted_us : 0;
  const Adopted adopted{incoming.transfer, usage};
  context.send(joining_.scheduler(), adopted, routing);
  context.send(incoming.source, adopted, routing);
  end_at_once(context, incoming);
}

void Decode::start_sequence(const Incoming& incoming, size_t index, uint64_t age) {
  const Adopt& adopt = *incoming.adopt;
  const TokenEntry& first = adopt.first[index];
  const std::vector<TokenId>& committed = adopt.committed[index];
  std::optional<Sequence>& place = sequences_[incoming.slots[index].slot.value];
  CHECK(!place);
  Sequence& sequence = place.emplace();
  sequence.request = incoming.request;
  sequence.epoch = incoming.epoch;
  sequence.gateway = adopt.gateway;
  sequence.transfer = incoming.transfer;
  sequence.slot = incoming.slots[index];
  sequence.choice = first.choice;
  sequence.age = age;
  sequence.weights = incoming.weights;
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
