#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/fp_mode.h"
#include "kernels/sampling.h"
#include "tests/unit/kernels/support.h"

namespace baton::test {
namespace {

VocabSummary summarize(const Ops& ops, const std::vector<float>& logits) {
  std::vector<VocabTile> tiles((logits.size() + kVocabTile - 1) / kVocabTile);
  ops.vocab_tiles(logits.data(), logits.size(), 0, tiles.size(), tiles.data());
  return summarize_vocab(ops, tiles.data(), tiles.size());
}

}  // namespace

TEST_CASE("log-probabilities are near the exact ones and the same on every instruction set") {
  const FpModeScope mode;
  Random random(41);
  for (const std::size_t n : {1, 15, 512, 1024, 1025, 5000, 49152}) {
    CAPTURE(n);
    const std::vector<float> x = normals(random, n, 5);
    const VocabSummary s = summarize(reference(), x);
    double sum = 0;
    for (const float v : x) sum += std::exp(double{v} - double{s.max});
    CHECK(s.finite);
    CHECK(s.max == *std::max_element(x.begin(), x.end()));
    CHECK(s.argmax == std::max_element(x.begin(), x.end()) - x.begin());
    for (std::size_t i = 0; i < n; i += 97) {
      const double wanted = double{x[i]} - double{s.max} - std::log(sum);
      CHECK(std::abs(double{log_probability(s, x[i])} - wanted) <= 1e-6 * (1 + std::abs(wanted)));
    }
    for (const Ops* ops : vector_tables()) {
      CAPTURE(ops->name);
      const VocabSummary own = summarize(*ops, x);
      CHECK(own.log_sum == s.log_sum);
      CHECK(own.max == s.max);
      CHECK(own.argmax == s.argmax);
    }
  }
}

TEST_CASE("the lowest of equal logits wins, and bad logits are noticed wherever they are") {
  const FpModeScope mode;
  std::vector<const Ops*> tables = vector_tables();
  tables.push_back(&reference());
  for (const Ops* ops : tables) {
    std::vector<float> x(3000, 1.0f);
    x[1500] = x[1777] = x[2900] = 2.0f;
    CHECK(summarize(*ops, x).argmax == 1500);
    for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
      for (const std::size_t at : {0, 1023, 1024, 2999}) {
        std::vector<float> y = x;
        y[at] = bad;
        CHECK_FALSE(summarize(*ops, y).finite);
      }
    }
  }
}

TEST_CASE("top-k ranks by value, then by id, for every k") {
  const FpModeScope mode;
  Random random(42);
  std::vector<const Ops*> tables = vector_tables();
  tables.push_back(&reference());
  for (int round = 0; round < 30; ++round) {
    const std::size_t n = random.between(1, 3000);
    std::vector<float> x(n);
    for (float& v : x) {  // many ties
      v = round % 2 == 0 ? random.normal() : static_cast<float>(random.between(0, 9));
    }
    if (round % 3 == 0) x[random.between(0, n - 1)] = -std::numeric_limits<float>::infinity();
    std::vector<std::int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      return x[static_cast<std::size_t>(a)] > x[static_cast<std::size_t>(b)];
    });
    for (const std::size_t k : {std::size_t{1}, std::size_t{5}, std::size_t{20}, n / 2, n, n + 9}) {
      for (const Ops* ops : tables) {
        CAPTURE(ops->name);
        CAPTURE(n);
        CAPTURE(k);
        std::vector<std::int32_t> ids(std::max<std::size_t>(k, 1), -7);
        const std::size_t got = ops->top_k(x.data(), n, k, ids.data());
        REQUIRE(got == std::min(k, n));
        CHECK(std::equal(ids.begin(), ids.begin() + static_cast<long>(got), order.begin()));
      }
    }
  }
}

}  // namespace baton::test
