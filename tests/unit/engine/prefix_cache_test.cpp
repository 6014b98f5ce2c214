#include "runtime/engine/prefix_cache.h"

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace baton {
namespace {

constexpr uint32_t kBlockTokens = 4;
using Tokens = std::vector<TokenId>;

PrefixScope scope_of(const std::string& tenant, uint64_t version = 1) {
  return {tenant, "", version, 7, 7, 99};
}

// Sequences, and what their blocks hold: a block's content is the whole sequence up to its end, so
// that a block in two hands or in the wrong place is seen.
class Bench {
 public:
  Bench(uint32_t blocks, uint32_t cached_max) : pool(blocks), cache(pool, cached_max) {}

  struct Sequence {
    std::string tenant;
    Tokens tokens;
    std::vector<BlockLease> blocks;
    size_t hit = 0;
  };

  static std::vector<PrefixHash> chain(const Sequence& s) {
    return prefix_chain(prefix_root(scope_of(s.tenant)), s.tokens, kBlockTokens);
  }
  static std::string content(const Sequence& s, size_t block) {
    std::string text = s.tenant + ":";
    for (size_t i = 0; i < (block + 1) * kBlockTokens; ++i) {
      text += std::to_string(s.tokens[i]) + ",";
    }
    return text;
  }

  // Looks up, takes the rest, and "computes" it; false when there is no room.
  bool start(Sequence& s) {
    const std::vector<PrefixHash> names = chain(s);
    s.blocks = cache.find(names);
    s.hit = s.blocks.size();
    for (size_t i = 0; i < s.hit; ++i) CHECK(contents[s.blocks[i].id()] == content(s, i));
    std::vector<BlockLease> rest = cache.take(static_cast<uint32_t>(names.size() - s.hit));
    if (rest.size() < names.size() - s.hit) {
      s.blocks.clear();
      return false;
    }
    for (BlockLease& block : rest) {
      CHECK(pool.references(block.id()) == 1);
      contents[block.id()] = content(s, s.blocks.size());
      s.blocks.push_back(std::move(block));
    }
    return true;
  }

  BlockPool pool;
  PrefixCache cache;
  std::map<BlockId, std::string> contents;
};

Tokens draw_tokens(std::mt19937& random) {
  Tokens tokens(random() % 25);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % 2);
  return tokens;
}

}  // namespace

TEST_CASE("a chain names full blocks only, each with everything before it") {
  const PrefixHash root = prefix_root(scope_of("a"));
  const Tokens tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto chain = prefix_chain(root, tokens, 4);
  REQUIRE(chain.size() == 2);
  CHECK(chain[1] == prefix_next(chain[0], std::span(tokens).subspan(4, 4)));
  CHECK(prefix_chain(root, std::span(tokens).first(3), 4).empty());
  // The same second block behind another first one has another name.
  const auto other = prefix_chain(root, Tokens{1, 2, 3, 0, 5, 6, 7, 8}, 4);
  CHECK(other[0] != chain[0]);
  CHECK(other[1] != chain[1]);
}

TEST_CASE("T96: tenant, adapter, weights version, numerics and secret are part of every name") {
  const PrefixScope base = scope_of("a");
  std::vector<PrefixScope> scopes(8, base);
  scopes[1].tenant = "b";
  scopes[2].adapter = "b";
  scopes[3].weights_version = 2;
  scopes[4].source_numerics = 8;
  scopes[5].target_numerics = 8;
  scopes[6].secret = 100;
  scopes[7].tenant = "";
  scopes[7].adapter = "a";  // not the same as the tenant of that name
  std::vector<PrefixHash> names;
  for (const PrefixScope& scope : scopes) {
    names.push_back(prefix_chain(prefix_root(scope), Tokens{1, 2, 3, 4}, 4)[0]);
  }
  std::sort(names.begin(), names.end());
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
}

TEST_CASE("what was kept is found, as far as it agrees, and nothing of another tenant") {
  Bench bench(16, 16);
  Bench::Sequence first{"a", {1, 2, 3, 4, 5, 6, 7, 8, 9}, {}};
  REQUIRE(bench.start(first));
  CHECK_FALSE(bench.cache.keep(Bench::chain(first), first.blocks));
  CHECK(bench.pool.free() == 14);
  first.blocks.clear();
  CHECK(bench.pool.free() == 14);
  CHECK(bench.cache.available() == 16);

  Bench::Sequence half{"a", {1, 2, 3, 4, 0, 0, 0, 0}, {}};
  REQUIRE(bench.start(half));
  CHECK(half.hit == 1);
  Bench::Sequence foreign{"b", first.tokens, {}};
  REQUIRE(bench.start(foreign));
  CHECK(foreign.hit == 0);
}

TEST_CASE("blocks go back when the pool is short: oldest first, ends first, none in use") {
  Bench bench(4, 4);
  Bench::Sequence older{"a", {1, 1, 1, 1, 2, 2, 2, 2}, {}};
  Bench::Sequence newer{"a", {3, 3, 3, 3, 4, 4, 4, 4}, {}};
  for (Bench::Sequence* s : {&older, &newer}) {
    REQUIRE(bench.start(*s));
    bench.cache.keep(Bench::chain(*s), s->blocks);
    s->blocks.clear();
  }
  CHECK(bench.pool.free() == 0);
  const auto one = bench.cache.take(1);
  REQUIRE(one.size() == 1);
  CHECK(bench.cache.peek(Bench::chain(older)) == 1);
  CHECK(bench.cache.peek(Bench::chain(newer)) == 2);
  const auto held = bench.cache.find(Bench::chain(newer));
  CHECK(bench.cache.available() == 1);
  CHECK(bench.cache.take(2).empty());
  CHECK(bench.cache.peek(Bench::chain(older)) == 1);  // all or nothing: none went for nothing
  CHECK(bench.cache.take(1).size() == 1);
  CHECK(bench.cache.peek(Bench::chain(older)) == 0);
  CHECK(held.size() == 2);
}

TEST_CASE("two sequences that computed the same hold one block in the end") {
  Bench bench(8, 8);
  Bench::Sequence a{"t", {1, 2, 3, 4, 5, 6, 7, 8}, {}};
  Bench::Sequence b = {"t", a.tokens, {}};
  REQUIRE(bench.start(a));
  REQUIRE(bench.start(b));
  CHECK(bench.pool.free() == 4);
  CHECK_FALSE(bench.cache.keep(Bench::chain(a), a.blocks));
  CHECK(bench.cache.keep(Bench::chain(b), b.blocks));
  CHECK(bench.pool.free() == 6);
  CHECK(b.blocks[1].id() == a.blocks[1].id());
}

TEST_CASE("a sequence that missed its turn exchanges what stands before its next block") {
  Bench bench(8, 1);
  Bench::Sequence hog{"t", {9, 9, 9, 9}, {}};
  Bench::Sequence late{"t", {1, 2, 3, 4, 5, 6, 7, 8}, {}};
  REQUIRE(bench.start(hog));
  bench.cache.keep(Bench::chain(hog), hog.blocks);
  REQUIRE(bench.start(late));
  auto chain = Bench::chain(late);
  bench.cache.keep(std::span(chain).first(1), late.blocks);
  CHECK(bench.cache.peek(chain) == 0);  // full of what is in use
  hog.blocks.clear();
  Bench::Sequence twin{"t", {1, 2, 3, 4}, {}};
  REQUIRE(bench.start(twin));
  bench.cache.keep(Bench::chain(twin), twin.blocks);
  CHECK(bench.cache.peek(chain) == 1);
  CHECK(bench.cache.keep(chain, late.blocks, 1));
  CHECK(late.blocks[0].id() == twin.blocks[0].id());
}

TEST_CASE("switched off it keeps and finds nothing") {
  Bench bench(8, 0);
  Bench::Sequence a{"t", {1, 2, 3, 4}, {}};
  REQUIRE(bench.start(a));
  CHECK_FALSE(bench.cache.keep(Bench::chain(a), a.blocks));
  CHECK(bench.cache.find(Bench::chain(a)).empty());
  a.blocks.clear();
  CHECK(bench.pool.free() == 8);
}

// Against brute force: contents are compared block by block with the sequence itself, so a hit is
// never longer than a true common beginning; and what take() can deliver is counted by taking it.
TEST_CASE("random sequences: hits are true, blocks are in one hand, room is as said") {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const uint32_t blocks = 4 + random() % 40;
    const uint32_t cached_max = 1 + random() % blocks;
    Bench bench(blocks, cached_max);
    std::vector<Bench::Sequence> live;
    size_t hits = 0;
    for (int turn = 0; turn < 400; ++turn) {
      if (random() % 2 == 0) {
        Bench::Sequence s{random() % 4 == 0 ? "b" : "a", draw_tokens(random), {}};
        if (bench.start(s)) {
          hits += s.hit;
          live.push_back(std::move(s));
        }
      } else if (!live.empty()) {
        const size_t at = random() % live.size();
        Bench::Sequence& s = live[at];
        const auto chain = Bench::chain(s);
        const size_t part = random() % (chain.size() + 1);
        bench.cache.keep(std::span(chain).first(part), s.blocks);
        if (random() % 2 == 0) bench.cache.keep(chain, s.blocks, part);
        for (size_t i = 0; i < s.blocks.size(); ++i) {
          CHECK(bench.contents[s.blocks[i].id()] == Bench::content(s, i));
        }
        if (random() % 3 > 0) live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
      }
      CHECK(bench.cache.blocks() <= cached_max);
      if (turn % 20 != 0) continue;
      const uint32_t room = bench.cache.available();
      CHECK(bench.cache.take(room + 1).empty());
      if (random() % 4 == 0) CHECK(bench.cache.take(room).size() == room);
    }
    if (blocks > 20 && cached_max > 10) CHECK(hits > 0);
    live.clear();
    CHECK(bench.cache.available() == blocks);
    bench.cache.clear();
    CHECK(bench.pool.free() == blocks);
  }
}

// With room for everything, a hit is exactly the longest beginning of full blocks that was kept.
TEST_CASE("with room for all, a hit is the longest common beginning of full blocks") {
  std::mt19937 random(3);
  Bench bench(4000, 4000);
  std::vector<std::string> kept;
  for (int turn = 0; turn < 300; ++turn) {
    Bench::Sequence s{"a", draw_tokens(random), {}};
    size_t longest = 0;
    const size_t full = s.tokens.size() / kBlockTokens;
    while (longest < full &&
           std::find(kept.begin(), kept.end(), Bench::content(s, longest)) != kept.end()) {
      ++longest;
    }
    REQUIRE(bench.start(s));
    CHECK(s.hit == longest);
    bench.cache.keep(Bench::chain(s), s.blocks);
    for (size_t i = longest; i < full; ++i) kept.push_back(Bench::content(s, i));
  }
}

}  // namespace baton
