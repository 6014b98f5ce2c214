#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "kernels/fp_mode.h"
#include "kernels/sampling.h"
#include "tests/unit/kernels/support.h"

namespace baton::test {
namespace {

std::int32_t draw(const Ops& ops, const std::vector<float>& logits, const SampleArgs& args) {
  Buffer scratch(sample_scratch_bytes(logits.size()));
  return sample(ops, logits.data(), logits.size(), args, scratch.data());
}

// Every token that the filters leave, found by stepping through [0, 1).
std::map<std::int32_t, double> support(const std::vector<float>& logits, SampleArgs args) {
  std::map<std::int32_t, double> found;
  for (int i = 0; i < 20000; ++i) {
    args.uniform = (i + 0.5) / 20000;
    found[draw(ops(), logits, args)] += 1.0 / 20000;
  }
  return found;
}

std::vector<float> logs(std::vector<float> p) {
  for (float& v : p) v = std::log(v);
  return p;
}

}  // namespace

TEST_CASE("Philox gives the published values") {
  const PhiloxBlock zero = philox4x32_10({{0, 0, 0, 0}}, 0, 0);
  CHECK(zero.word[0] == 0x6627e8d5u);
  CHECK(zero.word[1] == 0xe169c58du);
  CHECK(zero.word[2] == 0xbc57ac4cu);
  CHECK(zero.word[3] == 0x9b00dbd8u);
  const PhiloxBlock ones = philox4x32_10({{~0u, ~0u, ~0u, ~0u}}, 0xffffffffu, 0xffffffffu);
  CHECK(ones.word[0] == 0x408f276du);
  CHECK(ones.word[1] == 0x41c83b0eu);
  CHECK(ones.word[2] == 0xa20bc7c6u);
  CHECK(ones.word[3] == 0x6d5451fdu);
  const PhiloxBlock pi = philox4x32_10({{0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u}},
                                       0xa4093822u, 0x299f31d0u);
  CHECK(pi.word[0] == 0xd16cfe09u);
  CHECK(pi.word[1] == 0x94fdccebu);
  CHECK(pi.word[2] == 0x5001e420u);
  CHECK(pi.word[3] == 0x24126ea1u);
}

TEST_CASE("uniform numbers depend on every part of the key and fill [0, 1) evenly") {
  const double base = uniform({1, 2, 3});
  CHECK(base == uniform({1, 2, 3}));
  CHECK(base != uniform({2, 2, 3}));
  CHECK(base != uniform({std::uint64_t{1} << 32 | 1, 2, 3}));
  CHECK(base != uniform({1, 3, 3}));
  CHECK(base != uniform({1, 2, 4}));
  int bins[10] = {};
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const double u = uniform({99, i, 0});
    REQUIRE(u >= 0.0);
    REQUIRE(u < 1.0);
    ++bins[static_cast<int>(u * 10)];
  }
  for (const int bin : bins) CHECK(std::abs(bin - 10000) < 500);
}

TEST_CASE("temperature 0 takes the largest logit, lowest id first") {
  const FpModeScope mode;
  CHECK(draw(ops(), {1, 3, 2, 3}, {}) == 1);
}

TEST_CASE("tokens come as often as their probabilities say") {
  const FpModeScope mode;
  SampleArgs args;
  args.temperature = 1;
  const auto found = support(logs({0.5f, 0.25f, 0.125f, 0.125f}), args);
  CHECK(found.at(0) == doctest::Approx(0.5).epsilon(0.001));
  CHECK(found.at(1) == doctest::Approx(0.25).epsilon(0.001));
  CHECK(found.at(3) == doctest::Approx(0.125).epsilon(0.001));
  args.temperature = 0.5f;  // squares
  CHECK(support(logs({0.75f, 0.25f}), args).at(0) == doctest::Approx(0.9).epsilon(0.001));
}

TEST_CASE("top-k, top-p and min-p leave what they promise, in this order") {
  const FpModeScope mode;
  const std::vector<float> logits = logs({0.1f, 0.4f, 0.2f, 0.2f, 0.1f});
  SampleArgs args;
  args.temperature = 1;
  args.top_k = 2;  // of the two at 0.2 the lower id stays
  CHECK(support(logits, args).size() == 2);
  CHECK(support(logits, args).count(2) == 1);
  args.top_k = 0;
  args.top_p = 0.55f;
  CHECK(support(logits, args).size() == 2);
  args.top_p = 0.65f;
  CHECK(support(logits, args).size() == 3);
  args.top_p = 0.0f;
  CHECK(support(logits, args).size() == 1);
  args.top_p = 0.6f;
  args.top_k = 2;  // renormalised: 0.4 of 0.6 is 0.67
  CHECK(support(logits, args).size() == 1);
  args.top_k = 0;
  args.top_p = 1;
  args.min_p = 0.45f;
  CHECK(support(logits, args).size() == 3);
  args.min_p = 1;
  CHECK(support(logits, args).size() == 1);
}

TEST_CASE("top-p over a flat vocabulary keeps as many tokens as it takes") {
  const FpModeScope mode;
  SampleArgs args;
  args.temperature = 1;
  args.top_p = 0.5f;
  const std::vector<float> flat(4000, 0.0f);
  args.uniform = 0.9999999;
  CHECK(draw(ops(), flat, args) == 1999);
  args.uniform = 0;
  CHECK(draw(ops(), flat, args) == 0);
}

TEST_CASE("penalties, biases and the mask change the scores before everything else") {
  const FpModeScope mode;
  const TokenCount counts[] = {{0, 0}, {1, 2}, {77, 1}};
  SampleArgs args;
  args.counts = counts;
  args.counts_n = 3;
  CHECK(draw(ops(), {2, 3, 1}, args) == 1);
  args.repetition_penalty = 4;  // 0.5, 0.75, 1
  CHECK(draw(ops(), {2, 3, 1}, args) == 2);
  CHECK(draw(ops(), {-2, -1, -5}, args) == 1);  // -8, -4, -5
  args.repetition_penalty = 1;
  args.frequency_penalty = 0.75f;  // 3 - 1.5
  CHECK(draw(ops(), {2, 3, 1}, args) == 0);
  args.frequency_penalty = 0;
  args.presence_penalty = 1.5f;  // only what is in the output
  CHECK(draw(ops(), {2, 3, 1}, args) == 0);
  const TokenBias biases[] = {{2, 5.0f}, {-1, 9.0f}, {3, 9.0f}};
  args.biases = biases;
  args.biases_n = 3;
  CHECK(draw(ops(), {2, 3, 1}, args) == 2);
  const std::uint32_t allowed = 0b011;
  args.allowed = &allowed;
  CHECK(draw(ops(), {2, 3, 1}, args) == 0);
  const std::uint32_t nothing = 0;
  args.allowed = &nothing;
  CHECK(draw(ops(), {2, 3, 1}, args) == -1);
}

TEST_CASE("no token is drawn from logits that are no numbers") {
  const FpModeScope mode;
  SampleArgs args;
  CHECK(draw(ops(), {1, std::nanf(""), 2}, args) == -1);
  args.temperature = 1;
  CHECK(draw(ops(), {1, INFINITY, 2}, args) == -1);
}

TEST_CASE("the smallest temperatures stay finite and choose the largest") {
  const FpModeScope mode;
  SampleArgs args;
  args.temperature = 1e-30f;
  args.uniform = 0.999;
  CHECK(draw(ops(), {1, 80, 79.999f}, args) == 1);
}

TEST_CASE("every instruction set draws the same tokens, and none outside the filters") {
  const FpModeScope mode;
  Random random(51);
  for (int round = 0; round < 200; ++round) {
    const std::size_t n = random.between(1, 5000);
    const std::vector<float> logits = normals(random, n, 4);
    SampleArgs args;
    args.temperature = static_cast<float>(0.1 + 1.9 * random.unit());
    args.top_k = static_cast<std::int32_t>(random.between(0, 60));
    args.top_p = random.between(0, 1) == 0 ? 1.0f : static_cast<float>(random.unit());
    args.min_p = random.between(0, 1) == 0 ? 0.0f : static_cast<float>(0.3 * random.unit());
    args.uniform = random.unit();
    const std::int32_t token = draw(reference(), logits, args);
    REQUIRE(token >= 0);
    for (const Ops* ops : vector_tables()) CHECK(draw(*ops, logits, args) == token);
    if (args.top_k > 0) {
      const float value = logits[static_cast<std::size_t>(token)];
      const auto better =
          std::count_if(logits.begin(), logits.end(), [&](float v) { return v > value; });
      CHECK(better < args.top_k);
    }
  }
}

}  // namespace baton::test
