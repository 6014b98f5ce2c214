// Log-probabilities of prompts: log P(t | earlier tokens), for the first token nothing.

#include "tests/unit/engine/engine_rig.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

namespace baton {
namespace {

constexpr std::size_t kSize = 150;  // more than the rows of one pass over the vocabulary

Sequence scored(uint64_t seed, std::size_t size = kSize) {
  Sequence s;
  s.prompt = made_up_prompt(size, seed);
  s.sampling.prompt_logprobs = 2;
  s.sampling.top_logprobs = 2;
  return s;
}

RigOptions exact() {
  RigOptions options;
  options.model = "F32";
  options.mode = ActivationMode::f32;
  options.kv_dtype = KvDtype::f32;
  return options;
}

// log P of `token` by a slow softmax in double precision.
double slow_logprob(const std::vector<float>& logits, TokenId token) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x));
  return static_cast<double>(logits[static_cast<std::size_t>(token)]) - std::log(sum);
}

}  // namespace

TEST_CASE("a prompt's log-probabilities come from the logits before each token (S6, T52)") {
  EngineRig rig(exact());
  const Sequence s = scored(1, 40);
  const Trace trace = rig.run_alone(s, 1);
  REQUIRE(trace.prompt_logprobs.size() == s.prompt.size() - 1);
  REQUIRE(trace.prompt_top.size() == s.prompt.size() - 1);
  for (std::size_t i = 0; i + 1 < s.prompt.size(); ++i) {
    CAPTURE(i);
    Sequence prefix = s;  // its next-token logits are what scores token i + 1
    prefix.prompt.resize(i + 1);
    const Trace before = rig.run_alone(prefix, 1);
    CHECK(trace.prompt_logprobs[i] ==
          doctest::Approx(slow_logprob(before.logits.front(), s.prompt[i + 1])).epsilon(1e-5));
    REQUIRE(trace.prompt_top[i].size() == 2);
    CHECK(trace.prompt_top[i][0].id == before.tokens.front());
    CHECK(trace.prompt_top[i][0].logprob == before.top.front()[0].logprob);
    CHECK(trace.prompt_top[i][1].id == before.top.front()[1].id);
  }
}

TEST_CASE("the prompts of a pack are scored as if each were alone (S12)") {
  for (const ActivationMode mode : {ActivationMode::int8, ActivationMode::f32}) {
    RigOptions options;
    options.mode = mode;
    options.threads = 2;
    EngineRig rig(options);
    const std::vector<Sequence> pack = {scored(1), scored(2, 7), scored(3, 64), scored(4),
                                        scored(5, 1)};
    const std::vector<Trace> packed = rig.run(pack, 1);
    for (std::size_t i = 0; i < pack.size(); ++i) {
      CAPTURE(i);
      CHECK(same_bits(packed[i], rig.run_alone(pack[i], 1)));
      for (const float logprob : packed[i].prompt_logprobs) {
        CHECK(std::isfinite(logprob));
        CHECK(logprob <= 0);
      }
    }
    CHECK(packed.back().prompt_logprobs.empty());  // one token: nothing comes before it
  }
}

TEST_CASE("a prompt can be scored without choosing a token (T86)") {
  EngineRig rig(exact());
  const Sequence s = scored(6);
  const Trace only_scored = rig.run_alone(s, 0);
  CHECK(only_scored.tokens.empty());
  CHECK(only_scored.prompt_logprobs == rig.run_alone(s, 1).prompt_logprobs);
}

TEST_CASE("chunks that start with the last token of the chunk before score the whole prompt") {
  RigOptions options;
  EngineRig rig(options);
  const Sequence s = scored(7);
  const Trace whole = rig.run_alone(s, 1);
  for (const uint32_t chunk : {2u, 16u, 17u, 50u}) {  // starts at ends, middles of blocks
    CAPTURE(chunk);
    rig.driver().reset_blocks();
    const std::vector<BlockId> blocks = rig.driver().take_blocks(kSize);
    std::vector<float> scores;
    TokenId token = -1;
    for (uint32_t begin = 0; begin + 1 < kSize; begin += chunk - 1) {
      const uint32_t end = std::min<uint32_t>(begin + chunk, kSize);
      BatchRow row;
      row.tokens.assign(s.prompt.begin() + begin, s.prompt.begin() + end);
      row.position = begin;
      row.blocks = blocks;
      if (end < kSize) row.samples.clear();
      row.sampling = s.sampling;
      const RowResult result = rig.driver().step({row}).rows.front();
      scores.insert(scores.end(), result.prompt_logprobs.begin(), result.prompt_logprobs.end());
      if (end == kSize) token = result.samples.at(0).token;
    }
    REQUIRE(scores.size() == whole.prompt_logprobs.size());
    CHECK(std::memcmp(scores.data(), whole.prompt_logprobs.data(), scores.size() * sizeof(float)) ==
          0);
    CHECK(token == whole.tokens.front());
  }
}

TEST_CASE("scoring a prompt does not change what follows it") {
  EngineRig rig(RigOptions{});
  Sequence s = scored(8);
  const Trace with = rig.run_alone(s, 8);
  s.sampling.prompt_logprobs = -1;
  const Trace without = rig.run_alone(s, 8);
  CHECK(with.tokens == without.tokens);
  CHECK(with.logits == without.logits);
  CHECK(without.prompt_logprobs.empty());
}

}  // namespace baton
