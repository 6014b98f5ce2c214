#include "actors/prefill/packer.h"

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <doctest/doctest.h>

namespace baton {
namespace {

PackOptions options(uint32_t context = 1024, uint32_t step = 1024, size_t prompts = 16) {
  PackOptions o;
  o.prefill_lengths = auto_prefill_lengths(context);
  o.step_tokens_max = step;
  o.prompts_max = prompts;
  return o;
}

std::vector<uint64_t> keys(const Pack& pack) {
  std::vector<uint64_t> found;
  for (const PackItem& item : pack.items) found.push_back(item.key);
  return found;
}

}  // namespace

TEST_CASE("automatic prefill lengths are powers of two from 64 up to the context") {
  CHECK(auto_prefill_lengths(512) == std::vector<uint32_t>{64, 128, 256, 512});
  CHECK(auto_prefill_lengths(700) == std::vector<uint32_t>{64, 128, 256, 512, 700});
  CHECK(auto_prefill_lengths(64) == std::vector<uint32_t>{64});
  CHECK(auto_prefill_lengths(10) == std::vector<uint32_t>{10});
}

TEST_CASE("S11: prefill lengths that lack the context are refused with both numbers") {
  const Result<void> checked = check_prefill_lengths({64, 512}, 1024);
  REQUIRE(!checked.ok());
  CHECK(checked.error().code == ErrorCode::invalid_argument);
  CHECK(checked.error().text.find("512") != std::string::npos);
  CHECK(checked.error().text.find("1024") != std::string::npos);
  CHECK(!check_prefill_lengths({}, 64).ok());
  CHECK(!check_prefill_lengths({128, 64}, 64).ok());
  CHECK(!check_prefill_lengths({0, 64}, 64).ok());
  CHECK(!check_prefill_lengths({64, 64}, 64).ok());
  CHECK(check_prefill_lengths({100, 1024}, 1024).ok());
}

TEST_CASE("only prompts of one padded length share a pack") {
  Packer packer(options());
  packer.add({1, 60, 0});
  packer.add({2, 100, 1});
  packer.add({3, 50, 2});
  packer.flush();
  CHECK(keys(*packer.next(3)) == std::vector<uint64_t>{1, 3});
  CHECK(keys(*packer.next(3)) == std::vector<uint64_t>{2});
  CHECK(!packer.next(3));
}

TEST_CASE("a bucket fills by true lengths and runs when the next prompt does not fit") {
  Packer packer(options(256, 256, 16));
  for (uint64_t key = 1; key <= 3; ++key) packer.add({key, 70, 0});
  CHECK(packer.size() == 3);
  packer.add({4, 70, 0});
  const Pack pack = *packer.next(0);
  CHECK(keys(pack) == std::vector<uint64_t>{1, 2, 3});
  CHECK(pack.tokens == 210);
  CHECK(pack.reason == FlushReason::full);
  CHECK(packer.size() == 1);
}

TEST_CASE("a bucket that is filled to the last token runs at once") {
  Packer packer(options(256, 256, 16));
  packer.add({1, 128, 0});
  packer.add({2, 128, 0});
  packer.add({3, 20, 0});
  CHECK(packer.next(0)->reason == FlushReason::full);
  CHECK(packer.next(0)->reason == FlushReason::idle);
}

TEST_CASE("S2: no pack has more prompts than the limit") {
  Packer packer(options(1024, 1024, 4));
  for (uint64_t key = 1; key <= 9; ++key) packer.add({key, 10, 0});
  CHECK(packer.next(0)->items.size() == 4);
  CHECK(packer.next(0)->items.size() == 4);
  CHECK(packer.next(0)->items.size() == 1);
}

TEST_CASE("a prompt of the largest class runs alone") {
  Packer packer(options(1024, 1024));
  packer.add({1, 30, 0});
  packer.add({2, 600, 1});
  const Pack pack = *packer.next(1);
  CHECK(keys(pack) == std::vector<uint64_t>{2});
  CHECK(pack.reason == FlushReason::alone);
}

TEST_CASE("a step shorter than the context bounds a pack, and what exceeds it runs alone") {
  Packer packer(options(4096, 512));
  CHECK(packer.capacity() == 512);
  packer.add({1, 300, 0});
  packer.add({2, 3000, 0});
  CHECK(packer.next(0)->reason == FlushReason::alone);
  CHECK(packer.next(0)->reason == FlushReason::alone);
}

TEST_CASE("S1: an engine without work gets what waits, however little") {
  Packer packer(options());
  packer.add({1, 64, 0});
  const std::optional<Pack> pack = packer.next(0);
  REQUIRE(pack);
  CHECK(pack->reason == FlushReason::idle);
  CHECK(packer.size() == 0);
}

TEST_CASE("S1: a bucket whose oldest member is old enough is closed before younger packs") {
  Packer packer(options(1024, 1024, 2));
  packer.add({1, 200, 0});
  for (uint64_t key = 10; key < 16; ++key) packer.add({key, 30, 5});
  CHECK(packer.next(5)->items.front().key == 10);
  CHECK(packer.next(20 * kMillisecond)->items.front().key == 12);
  packer.add({20, 30, 20 * kMillisecond});
  packer.add({21, 30, 20 * kMillisecond});
  CHECK(packer.next(20 * kMillisecond)->items.front().key == 14);
  const Pack aged = *packer.next(20 * kMillisecond);
  CHECK(aged.items.front().key == 1);
  CHECK(aged.reason == FlushReason::aged);
}

TEST_CASE("a prompt can be taken out of a bucket or of a closed pack") {
  Packer packer(options(1024, 1024, 2));
  packer.add({1, 10, 0});
  packer.add({2, 10, 0});
  packer.add({3, 10, 0});
  CHECK(packer.remove(2));
  CHECK(packer.remove(3));
  CHECK(!packer.remove(3));
  CHECK(keys(*packer.next(0)) == std::vector<uint64_t>{1});
  CHECK(!packer.next(0));
}

TEST_CASE("the token budget packs any lengths in order of arrival") {
  PackOptions o = options(1024, 512);
  o.policy = PackPolicy::token_budget;
  Packer packer(o);
  packer.add({1, 10, 0});
  packer.add({2, 400, 1});
  packer.add({3, 90, 2});
  packer.add({4, 100, 3});
  CHECK(keys(*packer.next(3)) == std::vector<uint64_t>{1, 2, 3});
  packer.add({5, 900, 4});
  CHECK(keys(*packer.next(4)) == std::vector<uint64_t>{5});
  CHECK(keys(*packer.next(4)) == std::vector<uint64_t>{4});
}

// S1, S2 and the bucket rules over random arrivals, removals and takings.
void check_random_arrivals(uint32_t seed) {
  CAPTURE(seed);
  std::mt19937 random(seed);
  const uint32_t context = 64u << (random() % 6);
  PackOptions o = options(context, 16 + random() % 2048, 1 + random() % 16);
  o.policy = random() % 3 == 0 ? PackPolicy::token_budget : PackPolicy::buckets;
  o.age_max_us = random() % 1000;
  Packer packer(o);
  std::map<uint64_t, PackItem> waiting;
  uint64_t last_key = 0;
  Micros now = 0;
  for (int event = 0; event < 400; ++event) {
    now += random() % 50;
    const uint32_t what = random() % 10;
    if (what < 6) {
      const PackItem item{++last_key, 1 + static_cast<uint32_t>(random() % context), now};
      packer.add(item);
      waiting[item.key] = item;
    } else if (what == 6 && !waiting.empty()) {
      const uint64_t key = std::next(waiting.begin(), random() % waiting.size())->first;
      REQUIRE(packer.remove(key));
      waiting.erase(key);
    } else {
      const std::optional<Pack> pack = packer.next(now);
      REQUIRE(pack.has_value() == !waiting.empty());
      if (!pack) continue;
      REQUIRE(!pack->items.empty());
      REQUIRE(pack->items.size() <= o.prompts_max);
      uint32_t tokens = 0;
      std::set<uint32_t> classes;
      for (const PackItem& item : pack->items) {
        REQUIRE(waiting.erase(item.key) == 1);
        tokens += item.tokens;
        classes.insert(
            *std::lower_bound(o.prefill_lengths.begin(), o.prefill_lengths.end(), item.tokens));
      }
      REQUIRE(tokens == pack->tokens);
      REQUIRE((tokens <= packer.capacity() || pack->items.size() == 1));
      if (o.policy == PackPolicy::buckets) REQUIRE(classes.size() == 1);
      REQUIRE(std::is_sorted(pack->items.begin(), pack->items.end(),
                             [](const PackItem& a, const PackItem& b) { return a.key < b.key; }));
    }
    REQUIRE(packer.size() == waiting.size());
  }
  for (size_t packs = 0; !waiting.empty(); ++packs) {
    REQUIRE(packs <= last_key);
    const Pack pack = *packer.next(now);
    for (const PackItem& item : pack.items) waiting.erase(item.key);
  }
}

TEST_CASE("S1, S2: over random arrivals every prompt runs, in packs within the rules") {
  for (uint32_t seed = 1; seed <= 300; ++seed) check_random_arrivals(seed);
}

// No prompt waits behind an unbounded number of later ones: with the engine always taking the next
// pack and new prompts always arriving, each runs after at most the packs that were there or became
// too old before it.
TEST_CASE("S1: a lonely class is not starved by a stream of others") {
  Packer packer(options(1024, 1024, 4));
  packer.add({1, 500, 0});
  uint64_t key = 1;
  Micros now = 0;
  for (int packs = 0;; ++packs) {
    REQUIRE(packs < 20);
    for (int i = 0; i < 4; ++i) packer.add({++key, 20, now});
    now += 5 * kMillisecond;
    if (packer.next(now)->items.front().key == 1) break;
  }
}

// What runs before a prompt had come before it was old enough for its pack to be closed, or during
// the step under way then. Whatever the lengths, the order and the policy.
TEST_CASE("S1, S5: nobody is overtaken by what comes a pack's age and a step later") {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const uint32_t context = 64u << (random() % 6);
    PackOptions o = options(context, 16 + random() % 1024, 1 + random() % 8);
    o.policy = seed % 2 == 0 ? PackPolicy::token_budget : PackPolicy::buckets;
    o.age_max_us = random() % 30 * kMillisecond;
    const Micros step_max = (1 + random() % 20) * kMillisecond;
    Packer packer(o);
    Micros latest = 0;  // arrival of all that have run
    size_t ran = 0;
    uint64_t last_key = 0;
    Micros now = 0;
    for (int step = 0; step < 300 || packer.size() > 0; ++step) {
      REQUIRE(step < 1000 + static_cast<int>(last_key));  // each step takes one prompt or more
      for (Micros end = now + 1 + random() % step_max; now < end; now += 1 + random() % 500) {
        if (step < 300 && random() % 4 == 0) {
          const uint32_t tokens = 1 + random() % (random() % 3 == 0 ? context : 64);
          packer.add({++last_key, std::min(tokens, context), now});
        }
      }
      if (const std::optional<Pack> pack = packer.next(now)) {
        for (const PackItem& item : pack->items) {
          REQUIRE(latest <= item.arrival_us + o.age_max_us + step_max + 500);
        }
        for (const PackItem& item : pack->items) latest = std::max(latest, item.arrival_us);
        ran += pack->items.size();
      }
    }
    REQUIRE(ran == last_key);
  }
}

}  // namespace baton
