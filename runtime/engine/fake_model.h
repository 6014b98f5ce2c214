#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/ids.h"
#include "runtime/layout/geometry.h"

// The "model" of the fake engine: pure functions, so that a checker computes alone what a cluster
// has to say. A position's KV bytes come from its token and place, and the next token comes from
// the KV bytes of all positions: a block that is wrong, stale, torn or out of order gives another
// token.

namespace baton {

struct FakeModel {
  KvGeometry geometry{2, 2, 2, 16, KvDtype::f32, InnerLayout::cpu_pairs};
  TokenId vocabulary = 257;  // ids that it samples: [0, vocabulary)
  TokenId eos = 256;
  uint32_t eos_one_in = 48;  // how often a sampled token is eos; 0 = never
};

// What sampling depends on: a digest of the KV bytes of positions 0..p, in order.
inline constexpr uint64_t kFakeStart = 0x6261746F6Eu;

// Weights of the fake model are a number: it goes into every KV byte and into every digest, so that
// KV of other weights, or the next token by others, shows. Those of the start are zero.
inline constexpr uint64_t kFakeFirstWeights = 0;
uint64_t fake_weights(const std::string& path);  // of a file of this name; never zero
constexpr uint64_t fake_start(uint64_t weights) {
  return kFakeStart ^ weights;
}

// The 8 KV bytes of one (layer, k or v, head) of a position.
uint64_t fake_kv(TokenId token, uint32_t position, uint32_t layer, bool value, uint32_t head);
// Takes 8 bytes as they are in a block into the digest.
uint64_t fake_absorb(uint64_t digest, uint64_t bytes);
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
