#include "transport/mpi/staging.h"

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr size_t kBuffers = 16;
constexpr uint32_t kPerPeer = 4;

}  // namespace

TEST_CASE("T100: buffers are as large as the plan says, and grow only with a larger plan") {
  Staging staging(kBuffers, kPerPeer);
  CHECK_FALSE(staging.available(1));
  staging.reserve(0);  // a plan that packs nothing
  CHECK_FALSE(staging.available(1));
  staging.reserve(1000);
  REQUIRE(staging.available(1));
  Staging::Buffer held = staging.take(1);
  CHECK(held.size == 1000);
  staging.reserve(500);
  Staging::Buffer other = staging.take(1);
  CHECK(other.size == 1000);
  staging.reserve(3000);
  staging.give_back(std::move(held), false);
  staging.give_back(std::move(other), true);
  for (uint32_t peer = 0; peer < kBuffers / kPerPeer; ++peer) {
    for (uint32_t i = 0; i < kPerPeer; ++i) {
      REQUIRE(staging.available(peer));
      CHECK(staging.take(peer).size == 3000);
    }
  }
  CHECK_FALSE(staging.available(99));
}

TEST_CASE("a peer that takes nothing in holds its share of the buffers and no more") {
  Staging staging(kBuffers, kPerPeer);
  staging.reserve(64);
  std::vector<Staging::Buffer> stuck;
  while (staging.available(1)) stuck.push_back(staging.take(1));
  CHECK(stuck.size() == kPerPeer);
  CHECK(staging.available(2));
  staging.give_back(std::move(stuck.back()), true);
  CHECK(staging.available(1));
}
