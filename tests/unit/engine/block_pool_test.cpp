#include "runtime/engine/block_pool.h"

#include <random>
#include <set>
#include <utility>

#include <doctest/doctest.h>

namespace baton {

TEST_CASE("blocks come lowest first and go home in destructors") {
  BlockPool pool(130);
  {
    const std::vector<BlockLease> some = pool.take(70);
    REQUIRE(some.size() == 70);
    for (uint32_t i = 0; i < 70; ++i) CHECK(some[i].id().value == i);
    CHECK(pool.free() == 60);
    CHECK(pool.used() == 70);
  }
  CHECK(pool.free() == 130);
  CHECK(pool.take(1)[0].id().value == 0);
}

TEST_CASE("all or nothing: a pool with too few free blocks gives none") {
  BlockPool pool(4);
  const std::vector<BlockLease> three = pool.take(3);
  CHECK(pool.take(2).empty());
  CHECK(pool.free() == 1);
  CHECK(pool.take(0).empty());
  CHECK(pool.take(1).size() == 1);
}

TEST_CASE("a shared block is free when its last lease is gone") {
  BlockPool pool(2);
  std::vector<BlockLease> one = pool.take(1);
  BlockLease shared = one[0].share();
  CHECK(pool.references(shared.id()) == 2);
  one.clear();
  CHECK(pool.free() == 1);
  shared = BlockLease();
  CHECK(pool.free() == 2);
}

TEST_CASE("moving a lease neither frees nor doubles it") {
  BlockPool pool(3);
  std::vector<BlockLease> two = pool.take(2);
  BlockLease moved = std::move(two[0]);
  CHECK(moved.held());
  CHECK(!two[0].held());
  moved = std::move(two[1]);
  CHECK(pool.used() == 1);
  CHECK(moved.id().value == 1);
}

TEST_CASE("a named block is kept out of use") {
  BlockPool pool(3);
  const BlockLease named = pool.take_named({1});
  const std::vector<BlockLease> rest = pool.take(2);
  CHECK(rest[0].id().value == 0);
  CHECK(rest[1].id().value == 2);
  CHECK(pool.take(1).empty());
}

TEST_CASE("T15: random taking and giving never loses or doubles a block") {
  std::mt19937 random(7);
  BlockPool pool(200);
  std::vector<std::vector<BlockLease>> held;
  for (int i = 0; i < 5000; ++i) {
    if (random() % 2 == 0) {
      const uint32_t want = random() % 20;
      std::vector<BlockLease> taken = pool.take(want);
      CHECK((taken.size() == want || (taken.empty() && pool.free() < want)));
      held.push_back(std::move(taken));
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      held.pop_back();
    }
    std::set<uint32_t> ids;
    for (const auto& leases : held) {
      for (const BlockLease& lease : leases) REQUIRE(ids.insert(lease.id().value).second);
    }
    REQUIRE(pool.used() == ids.size());
  }
  held.clear();
  CHECK(pool.free() == 200);
}

}  // namespace baton
