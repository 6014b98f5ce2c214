#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/ids.h"
#include "runtime/layout/box.h"

// The "model" of the fake engine: pure functions, so that a checker computes alone what a cluster
// has to say. A position's KV values come from its token and place, and the next token comes from
// the values of all positions, layers and heads: a block that is wrong, stale, torn or out of
// order, a wrong head or layer, or a wrong element type gives another token. Values are small
// integers, which every KV type holds exactly.

namespace baton {

struct FakeModel {
  KvShape shape{3, 2, 4};    // layers, kv-heads, dims of a head (8 at most)
  uint32_t query_heads = 4;  // of all heads: what tensor parallelism cuts
  TokenId vocabulary = 257;  // ids that it samples: [0, vocabulary)
  TokenId eos = 256;
  uint32_t eos_one_in = 48;  // how often a sampled token is eos; 0 = never
};

// What sampling depends on: a digest of the KV values of positions 0..p, in order.
inline constexpr uint64_t kFakeStart = 0x6261746F6Eu;

// Weights of the fake model are a number: it goes into every KV value and into every digest, so
// that KV of other weights, or the next token by others, shows. Those of the start are zero.
inline constexpr uint64_t kFakeFirstWeights = 0;
uint64_t fake_weights(const std::string& path);  // of a file of this name; never zero
constexpr uint64_t fake_start(uint64_t weights) {
  return kFakeStart ^ weights;
}

// One (layer, k or v, head) of a position: a byte per dim is the element's value.
uint64_t fake_lane(const KvShape& shape, TokenId token, uint32_t position, uint32_t layer,
                   bool value, uint32_t head, uint64_t weights = kFakeFirstWeights);
// Takes a lane into the digest as it was found in a block.
uint64_t fake_absorb(uint64_t digest, uint64_t lane);
// Takes a whole position in, as it would be read from a correct block.
uint64_t fake_step(const FakeModel& model, uint64_t digest, TokenId token, uint32_t position,
                   uint64_t weights = kFakeFirstWeights);

struct FakeSample {
  TokenId token = 0;
  float logprob = 0;
};
// The token at `position` (that of the sampled token), given the digest of all before it.
FakeSample fake_sample(const FakeModel& model, uint64_t digest, uint32_t position, uint64_t seed,
                       uint32_t choice);
float fake_logprob(uint64_t digest, TokenId token);

// The token that follows a sequence.
FakeSample fake_next_token(const FakeModel& model, std::span<const TokenId> sequence, uint64_t seed,
                           uint32_t choice);

}  // namespace baton
