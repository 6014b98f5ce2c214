#include "runtime/engine/fake_model.h"

#include "runtime/base/hash.h"

namespace baton {

uint64_t fake_lane(const KvShape& shape, TokenId token, uint32_t position, uint32_t layer,
                   bool value, uint32_t head, uint64_t weights) {
  const uint64_t place =
      uint64_t{position} << 32 | uint64_t{layer} << 16 | uint64_t{head} << 1 | (value ? 1 : 0);
  const uint64_t bits = mix64(mix64(place) ^ static_cast<uint32_t>(token)) ^ weights;
  return shape.head_dim < 8 ? bits & ((uint64_t{1} << 8 * shape.head_dim) - 1) : bits;
}

uint64_t fake_weights(const std::string& path) {
  return hash64(path.data(), path.size()) | 1;
}

uint64_t fake_absorb(uint64_t digest, uint64_t lane) {
  return mix64(digest ^ lane);
}

uint64_t fake_step(const FakeModel& model, uint64_t digest, TokenId token, uint32_t position,
                   uint64_t weights) {
  for (uint32_t layer = 0; layer < model.shape.layers; ++layer) {
    for (bool value : {false, true}) {
      for (uint32_t head = 0; head < model.shape.kv_heads; ++head) {
        digest = fake_absorb(digest,
                             fake_lane(model.shape, token, position, layer, value, head, weights));
      }
    }
  }
  return digest;
}

float fake_logprob(uint64_t digest, TokenId token) {
  const uint64_t bits = mix64(digest + static_cast<uint32_t>(token));
  return -static_cast<float>(bits % 4096) / 512.0f;
}

FakeSample fake_sample(const FakeModel& model, uint64_t digest, uint32_t position, uint64_t seed,
                       uint32_t choice) {
  const uint64_t draw = mix64(mix64(digest ^ mix64(seed)) ^ (uint64_t{choice} << 32 | position));
  FakeSample sample;
  if (model.eos_one_in > 0 && draw % model.eos_one_in == 0) {
    sample.token = model.eos;
  } else {
    sample.token = static_cast<TokenId>((draw >> 16) % static_cast<uint64_t>(model.vocabulary));
  }
  sample.logprob = fake_logprob(digest, sample.token);
  return sample;
}

FakeSample fake_next_token(const FakeModel& model, std::span<const TokenId> sequence, uint64_t seed,
                           uint32_t choice) {
  uint64_t digest = kFakeStart;
  uint32_t position = 0;
  for (TokenId token : sequence) digest = fake_step(model, digest, token, position++);
  return fake_sample(model, digest, position, seed, choice);
}

}  // namespace baton
