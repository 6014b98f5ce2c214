#include "runtime/engine/sampler.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include "kernels/isa.h"
#include "runtime/base/hash.h"

namespace baton {
namespace {

// Logits of a row, and what the head would say about them.
struct Row {
  std::vector<float> logits;
  VocabSummary summary;

  explicit Row(std::vector<float> values) : logits(std::move(values)) {
    std::vector<VocabTile> tiles((logits.size() + kVocabTile - 1) / kVocabTile);
    ops().vocab_tiles(logits.data(), logits.size(), 0, tiles.size(), tiles.data());
    summary = summarize_vocab(ops(), tiles.data(), tiles.size());
  }
};

float noise(uint64_t seed) {  // in [-1, 1), the same everywhere
  return static_cast<float>(mix64(seed) >> 40) / static_cast<float>(1 << 23) - 1.0f;
}

Row made_up_row(std::size_t vocabulary, uint64_t seed) {
  std::vector<float> logits(vocabulary);
  for (std::size_t i = 0; i < vocabulary; ++i) logits[i] = 6 * noise(seed * 100'003 + i);
  return Row(std::move(logits));
}

BatchRow request(const SamplingParams& sampling, uint32_t position) {
  BatchRow row;
  row.tokens = {0};
  row.position = position;
  row.sampling = sampling;
  return row;
}

TokenId choose(const Row& row, const BatchRow& request) {
  Sampler sampler(ops(), row.logits.size(), 4096);
  RowResult result;
  Sampler::begin_result(request, row.logits.size(), result);
  REQUIRE(sampler.choose(request, row.logits, row.summary, result));
  return result.samples.at(0).token;
}

// The filters once more, slowly, in double precision and one token at a time: the probability of
// every token.
std::vector<double> slow_probabilities(const Row& row, const BatchRow& request) {
  const SamplingParams& p = request.sampling;
  std::map<TokenId, int> output;
  std::set<TokenId> seen(request.history.begin(), request.history.end());
  for (std::size_t i = request.prompt_tokens; i < request.history.size(); ++i) {
    ++output[request.history[i]];
  }
  const std::size_t n = row.logits.size();
  std::vector<double> y(row.logits.begin(), row.logits.end());
  for (const TokenId id : seen) {
    double& v = y[static_cast<std::size_t>(id)];
    v = v > 0 ? v / p.repetition_penalty : v * p.repetition_penalty;
    v -= p.frequency_penalty * output[id];
    if (output[id] > 0) v -= p.presence_penalty;
  }
  for (const auto& [id, bias] : p.logit_bias) y[static_cast<std::size_t>(id)] += bias;
  std::vector<std::size_t> ranking(n);
  std::iota(ranking.begin(), ranking.end(), std::size_t{0});
  std::stable_sort(ranking.begin(), ranking.end(),
                   [&](std::size_t a, std::size_t b) { return y[a] > y[b]; });
  std::vector<double> weight(n, 0.0);
  const std::size_t kept = p.top_k > 0 ? std::min<std::size_t>(n, p.top_k) : n;
  double total = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    weight[ranking[i]] = std::exp((y[ranking[i]] - y[ranking[0]]) / p.temperature);
    total += weight[ranking[i]];
  }
  double before = 0;
  for (std::size_t i = 0; i < kept; ++i) {
    double& w = weight[ranking[i]];
    const bool outside = before >= p.top_p * total;
    before += w;
    if (outside || w < p.min_p) w = 0;
  }
  const double left = std::accumulate(weight.begin(), weight.end(), 0.0);
  for (double& w : weight) w /= left;
  return weight;
}

// The token that the oracle chooses; none where the random number is too near to a boundary.
std::optional<TokenId> slow_choice(const std::vector<double>& probabilities, double u) {
  double sum = 0;
  for (std::size_t i = 0; i < probabilities.size(); ++i) {
    if (probabilities[i] == 0) continue;
    sum += probabilities[i];
    if (std::abs(sum - u) < 1e-5) return std::nullopt;
    if (u < sum) return static_cast<TokenId>(i);
  }
  return std::nullopt;
}

// Draws with many seeds and compares each with the oracle. Chosen sets must be those of the oracle
// but for tokens within rounding of a filter's bound, of which made-up logits have none.
void compare_with_oracle(const SamplingParams& sampling, const std::vector<TokenId>& history = {},
                         uint32_t prompt_tokens = 0) {
  for (const std::size_t vocabulary : {7u, 512u, 3000u}) {
    int compared = 0;
    for (uint32_t draw = 0; draw < 200; ++draw) {
      const Row row = made_up_row(vocabulary, draw % 10);
      BatchRow r = request(sampling, draw);
      r.sampling.seed = 77 + draw;
      r.history = history;
      r.prompt_tokens = prompt_tokens;
      const RandomKey key{r.sampling.seed, draw + 1, 0, RandomPurpose::sample};
      const auto expected = slow_choice(slow_probabilities(row, r), uniform(key));
      if (!expected) continue;
      ++compared;
      CHECK(choose(row, r) == *expected);
    }
    CHECK(compared > 180);
  }
}

SamplingParams hot(float temperature = 1) {
  SamplingParams p;
  p.temperature = temperature;
  return p;
}

}  // namespace

TEST_CASE("greedy takes the largest logit, and the lowest id of equals") {
  CHECK(choose(Row({1, 5, 5, 2}), request({}, 0)) == 1);
  CHECK(choose(Row({-3, -2, -2, -2}), request({}, 9)) == 1);
  SamplingParams biased;
  biased.logit_bias = {{3, 10.0f}};
  CHECK(choose(Row({1, 5, 5, 2}), request(biased, 0)) == 3);
}

TEST_CASE("draws follow the softmax of the logits (chi-square)") {
  const Row row({0.5f, -1, 2, 0, 1, -2, 0.25f, 1.5f});
  const std::vector<double> expected = slow_probabilities(row, request(hot(), 0));
  constexpr int kDraws = 20'000;
  std::vector<int> counts(row.logits.size());
  for (uint32_t i = 0; i < kDraws; ++i) {
    BatchRow r = request(hot(), i);
    r.sampling.seed = 5;
    ++counts[static_cast<std::size_t>(choose(row, r))];
  }
  double chi_square = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double e = expected[i] * kDraws;
    chi_square += (counts[i] - e) * (counts[i] - e) / e;
  }
  CHECK(chi_square < 24.3);  // 7 degrees of freedom: exceeded by chance once in a thousand
}

TEST_CASE("the noise comes from seed, choice and position, and from nothing else (S4)") {
  const Row row = made_up_row(512, 1);
  const auto stream = [&](uint64_t seed, uint32_t choice, uint32_t first) {
    std::vector<TokenId> out;
    for (uint32_t i = first; i < 64; ++i) {
      BatchRow r = request(hot(), i);
      r.sampling.seed = seed;
      r.samples = {choice};
      r.key = i * 31 + first;  // must not matter
      out.push_back(choose(row, r));
    }
    return out;
  };
  const std::vector<TokenId> base = stream(9, 0, 0);
  CHECK(stream(9, 0, 0) == base);
  CHECK(stream(10, 0, 0) != base);
  CHECK(stream(9, 1, 0) != base);
  CHECK(std::set<TokenId>(base.begin(), base.end()).size() > 10);  // each position has its own
  const std::vector<TokenId> resumed = stream(9, 0, 20);           // as after a retry
  CHECK(std::equal(resumed.begin(), resumed.end(), base.begin() + 20));
}

TEST_CASE("a chunk and a single token at the same position draw the same number") {
  const Row row = made_up_row(512, 2);
  BatchRow one = request(hot(), 41);
  BatchRow chunk = request(hot(), 30);
  chunk.tokens.assign(12, 0);
  CHECK(choose(row, one) == choose(row, chunk));
}

TEST_CASE("temperature agrees with a slow oracle") {
  for (const float t : {0.1f, 0.7f, 1.0f, 1.9f}) compare_with_oracle(hot(t));
}

TEST_CASE("top-k agrees with a slow oracle") {
  for (const int32_t k : {1, 2, 5, 40, 100'000}) {
    SamplingParams p = hot();
    p.top_k = k;
    compare_with_oracle(p);
  }
}

TEST_CASE("top-p agrees with a slow oracle") {
  for (const float top_p : {0.01f, 0.3f, 0.9f, 0.999f}) {
    SamplingParams p = hot(1.3f);
    p.top_p = top_p;
    compare_with_oracle(p);
  }
}

TEST_CASE("min-p agrees with a slow oracle") {
  for (const float min_p : {0.02f, 0.3f, 1.0f}) {
    SamplingParams p = hot(1.5f);
    p.min_p = min_p;
    compare_with_oracle(p);
  }
}

TEST_CASE("penalties and biases agree with a slow oracle") {
  const std::vector<TokenId> history = {0, 1, 1, 5, 2, 1, 5, 5, 6, 3};
  SamplingParams repetition = hot();
  repetition.repetition_penalty = 1.7f;
  compare_with_oracle(repetition, history, 4);
  SamplingParams presence = hot();
  presence.presence_penalty = 1.5f;
  compare_with_oracle(presence, history, 4);
  SamplingParams frequency = hot();
  frequency.frequency_penalty = -0.8f;
  compare_with_oracle(frequency, history, 4);
  SamplingParams bias = hot();
  bias.logit_bias = {{2, 3.5f}, {4, -100.0f}};
  compare_with_oracle(bias);
}

TEST_CASE("all filters together agree with a slow oracle") {
  SamplingParams p = hot(0.8f);
  p.top_k = 30;
  p.top_p = 0.92f;
  p.min_p = 0.02f;
  p.repetition_penalty = 1.2f;
  p.presence_penalty = 0.3f;
  p.frequency_penalty = 0.2f;
  p.logit_bias = {{1, 1.0f}};
  compare_with_oracle(p, {0, 1, 1, 5, 2, 1, 5, 5, 6, 3}, 4);
}

TEST_CASE("presence and frequency count the output only, repetition the prompt too") {
  const Row row({2, 1.9f, 0});
  BatchRow r = request({}, 0);
  r.history = {0, 0, 0};
  r.prompt_tokens = 3;
  r.sampling.presence_penalty = 1;
  r.sampling.frequency_penalty = 1;
  CHECK(choose(row, r) == 0);
  r.sampling.repetition_penalty = 1.5f;
  CHECK(choose(row, r) == 1);
  r.sampling.repetition_penalty = 1;
  r.prompt_tokens = 2;
  CHECK(choose(row, r) == 1);
}

TEST_CASE("T60: several choices of one row are each what they would be alone") {
  const Row row = made_up_row(512, 2);
  for (const float temperature : {0.0f, 1.0f}) {
    BatchRow together = request(hot(temperature), 7);
    together.samples = {0, 1, 5, 127};
    together.sampling.top_logprobs = 2;
    Sampler sampler(ops(), 512, 4096);
    RowResult result;
    Sampler::begin_result(together, 512, result);
    REQUIRE(sampler.choose(together, row.logits, row.summary, result));
    REQUIRE(result.samples.size() == 4);
    std::set<TokenId> different;
    for (const RowSample& sample : result.samples) {
      BatchRow alone = together;
      alone.samples = {sample.choice};
      CHECK(sample.token == choose(row, alone));
      CHECK(sample.top.size() == 2);
      CHECK(sample.top[0].id == result.samples[0].top[0].id);
      different.insert(sample.token);
    }
    CHECK((temperature > 0 ? different.size() > 1 : different.size() == 1));
  }
}

TEST_CASE("one sampler serves rows of different requests without a trace of the last one") {
  const Row row = made_up_row(512, 3);
  Sampler sampler(ops(), 512, 4096);
  BatchRow heavy = request(hot(), 3);
  heavy.history = {1, 2, 3, 4, 5, 6, 7};
  heavy.sampling.presence_penalty = 2;
  heavy.sampling.logit_bias = {{9, 50.0f}};
  const BatchRow light = request(hot(0.5f), 4);
  RowResult first;
  RowResult second;
  Sampler::begin_result(heavy, 512, first);
  Sampler::begin_result(light, 512, second);
  CHECK(sampler.choose(heavy, row.logits, row.summary, first));
  CHECK(sampler.choose(light, row.logits, row.summary, second));
  CHECK(first.samples.at(0).token == 9);
  CHECK(second.samples.at(0).token == choose(row, light));
}

TEST_CASE("log-probabilities are those of the raw logits, whatever the filters do") {
  const Row row({1, 3, 2, -1});
  BatchRow r = request(hot(0.01f), 0);
  r.sampling.top_k = 1;
  r.sampling.logit_bias = {{3, 100.0f}};
  r.sampling.top_logprobs = 3;
  Sampler sampler(ops(), 4, 16);
  RowResult result;
  Sampler::begin_result(r, 4, result);
  REQUIRE(sampler.choose(r, row.logits, row.summary, result));
  const double log_sum = std::log(std::exp(1.0) + std::exp(3.0) + std::exp(2.0) + std::exp(-1.0));
  const RowSample& sample = result.samples.at(0);
  CHECK(sample.token == 3);
  CHECK(sample.logprob == doctest::Approx(-1 - log_sum));
  REQUIRE(sample.top.size() == 3);
  CHECK(sample.top[0].id == 1);
  CHECK(sample.top[1].id == 2);
  CHECK(sample.top[2].id == 0);
  CHECK(sample.top[0].logprob == doctest::Approx(3 - log_sum));
}

TEST_CASE("as many top log-probabilities as asked for, at most the vocabulary (T54)") {
  const Row row = made_up_row(3000, 4);
  for (const int32_t k : {0, 1, 20, 200, 5000}) {
    BatchRow r = request({}, 0);
    r.sampling.top_logprobs = k;
    Sampler sampler(ops(), 3000, 16);
    RowResult result;
    Sampler::begin_result(r, 3000, result);
    REQUIRE(sampler.choose(r, row.logits, row.summary, result));
    const RowSample& sample = result.samples.at(0);
    REQUIRE(sample.top.size() == static_cast<std::size_t>(std::min(k, 3000)));
    for (std::size_t i = 1; i < sample.top.size(); ++i) {
      CHECK(sample.top[i - 1].logprob >= sample.top[i].logprob);
    }
    if (k > 0) CHECK(sample.top[0].id == sample.token);
  }
}

TEST_CASE("logits that are not finite choose nothing") {
  const float bad[] = {std::numeric_limits<float>::quiet_NaN(),
                       std::numeric_limits<float>::infinity(),
                       -std::numeric_limits<float>::infinity()};
  for (const float value : bad) {
    for (const float temperature : {0.0f, 1.0f}) {
      Row row = made_up_row(2000, 5);
      row.logits[1500] = value;
      const Row broken(row.logits);
      Sampler sampler(ops(), 2000, 16);
      RowResult result;
      CHECK_FALSE(
          sampler.choose(request(hot(temperature), 0), broken.logits, broken.summary, result));
      BatchRow prompt = request({}, 0);
      prompt.tokens = {1, 2};
      prompt.sampling.prompt_logprobs = 0;
      Sampler::begin_result(prompt, 2000, result);
      CHECK_FALSE(sampler.score_prompt(prompt, 0, broken.logits, broken.summary, result));
    }
  }
}

}  // namespace baton
