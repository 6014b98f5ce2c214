#include "actors/scheduler/prefix_directory.h"

#include <vector>

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr WorkerKey kA{1, 3}, kB{2, 3}, kC{3, 4};

std::vector<PrefixHash> names(size_t count, TokenId first = 0) {
  std::vector<TokenId> tokens(count * PrefixDirectory::kBlockTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i) + first;
  PrefixScope scope;
  return prefix_chain(prefix_root(scope), tokens, PrefixDirectory::kBlockTokens);
}
bool any(WorkerKey) {
  return true;
}

}  // namespace

TEST_CASE("the instance with the longest known beginning comes first") {
  PrefixDirectory directory(100);
  const auto prompt = names(4);
  directory.note(std::span(prompt).first(1), kA);
  directory.note(std::span(prompt).first(3), kB);
  const auto known = directory.find(prompt, 4, any);
  REQUIRE(known.size() == 2);
  CHECK(known[0].instance == kB);
  CHECK(known[0].tokens == 3 * PrefixDirectory::kBlockTokens);
  CHECK(known[1].instance == kA);
  CHECK(known[1].tokens == PrefixDirectory::kBlockTokens);
  CHECK(directory.find(prompt, 1, any).size() == 1);
  CHECK(directory.find(names(4, 9), 4, any).empty());
  const auto only_a = directory.find(prompt, 4, [](WorkerKey key) { return key == kA; });
  REQUIRE(only_a.size() == 1);
  CHECK(only_a[0].instance == kA);
}

TEST_CASE("a dead instance is forgotten, the others are not") {
  PrefixDirectory directory(100);
  const auto prompt = names(2);
  directory.note(prompt, kA);
  directory.note(prompt, kC);
  directory.forget(kA);
  const auto known = directory.find(prompt, 4, any);
  REQUIRE(known.size() == 1);
  CHECK(known[0].instance == kC);
  directory.forget(kC);
  CHECK(directory.size() == 0);
}

TEST_CASE("it is bounded, and what is in use stays") {
  PrefixDirectory directory(20);
  const auto used = names(1, 100000);
  for (TokenId i = 0; i < 100; ++i) {
    directory.note(used, kA);
    directory.note(names(1, i), kB);
    CHECK(directory.size() <= 20);
    CHECK(directory.find(used, 1, any).size() == 1);
  }
  CHECK(directory.find(names(1, 0), 1, any).empty());
}

TEST_CASE("of many instances with one beginning, the latest are remembered") {
  PrefixDirectory directory(20);
  const auto prompt = names(1);
  for (uint32_t rank = 1; rank <= 30; ++rank) directory.note(prompt, {rank, 3});
  const auto known = directory.find(prompt, 100, any);
  CHECK(known.size() == 8);
  CHECK(known[0].instance == WorkerKey{30, 3});
}
