#include "actors/scheduler/sites.h"

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr WorkerKey kP1{1, 3}, kP2{2, 3}, kD1{3, 4}, kD2{4, 4};

PrefillSite prefill_site(uint32_t outstanding = 0, uint64_t ahead = 0) {
  PrefillSite site;
  site.positions_max = 1000;
  site.window = 2;
  site.outstanding = outstanding;
  site.positions_ahead = ahead;
  return site;
}

DecodeSite decode_site(uint32_t slots_free, uint32_t blocks_free, uint32_t used = 0) {
  DecodeSite site;
  site.positions_max = 1000;
  site.slots = 4;
  site.block_tokens = 16;
  site.room = {slots_free, blocks_free, used};
  return site;
}

Sites four_sites() {
  Sites sites;
  sites.put(kP1, prefill_site());
  sites.put(kP2, prefill_site());
  sites.put(kD1, decode_site(4, 60));
  sites.put(kD2, decode_site(4, 60));
  return sites;
}

}  // namespace

TEST_CASE("the prefill instance with the fewest tokens ahead is chosen, if its window has room") {
  Sites sites = four_sites();
  sites.put(kP1, prefill_site(1, 500));
  sites.put(kP2, prefill_site(1, 20));
  CHECK(sites.place({10, 20, 1}).source == kP2);
  sites.put(kP2, prefill_site(2, 20));
  CHECK(sites.place({10, 20, 1}).source == kP1);
  sites.put(kP1, prefill_site(2, 500));
  CHECK(sites.place({10, 20, 1}).outcome == PlaceOutcome::prefill_full);
}

TEST_CASE("the decode instance with the fewest slots in use is chosen, then the emptiest") {
  Sites sites = four_sites();
  sites.put(kD1, decode_site(3, 60, 1));
  CHECK(sites.place({10, 20, 1}).target == kD2);
  sites.put(kD2, decode_site(3, 59, 1));
  CHECK(sites.place({10, 20, 1}).target == kD1);
}

TEST_CASE("T73: the size of the newcomer counts, and one block stays back for each that runs") {
  Sites sites = four_sites();
  sites.erase(kD2);
  sites.put(kD1, decode_site(2, 6, 2));
  CHECK(sites.place({64, 64, 1}).outcome == PlaceOutcome::placed);       // 4 blocks, 2 stay
  CHECK(sites.place({65, 65, 1}).outcome == PlaceOutcome::decode_full);  // 5 blocks
  sites.put(kD1, decode_site(4, 6, 0));
  CHECK(sites.place({96, 96, 1}).outcome == PlaceOutcome::placed);  // all of an empty pool
}

TEST_CASE("several choices need as many slots on one instance and a tail block each") {
  Sites sites = four_sites();
  sites.put(kD1, decode_site(2, 60));
  CHECK(sites.place({16, 16, 3}).target == kD2);
  sites.put(kD2, decode_site(4, 2));
  CHECK(sites.place({16, 16, 3}).outcome == PlaceOutcome::decode_full);
  CHECK(Sites::blocks_for({16, 16, 3}, 16) == 3);
  CHECK(Sites::blocks_for({17, 17, 1}, 16) == 2);
  CHECK(sites.place({16, 16, 5}).outcome == PlaceOutcome::impossible);
}

TEST_CASE("what no live instance could hold is impossible, not full") {
  Sites sites = four_sites();
  CHECK(sites.place({10, 1000, 1}).outcome == PlaceOutcome::placed);
  CHECK(sites.place({10, 1001, 1}).outcome == PlaceOutcome::impossible);
  sites.put(kD1, decode_site(0, 0, 4));
  sites.put(kD2, decode_site(0, 0, 4));
  CHECK(sites.place({10, 1000, 1}).outcome == PlaceOutcome::decode_full);
  sites.erase(kD1);
  sites.erase(kD2);
  CHECK(sites.place({10, 20, 1}).outcome == PlaceOutcome::impossible);
  CHECK_FALSE(sites.reach().decode);
  CHECK(sites.reach().prefill);
}

TEST_CASE("a closed or excluded instance is not chosen") {
  Sites sites = four_sites();
  CHECK(sites.place({10, 20, 1}, kD1).target == kD2);
  DecodeSite closed = decode_site(4, 60);
  closed.open = false;
  sites.put(kD2, closed);
  CHECK(sites.place({10, 20, 1}, kD1).outcome == PlaceOutcome::decode_full);
  CHECK(sites.place({10, 20, 1}).target == kD1);
}

TEST_CASE("the instance with the most free blocks is kept for a request that waits too long") {
  Sites sites = four_sites();
  sites.put(kD1, decode_site(0, 10, 4));
  sites.put(kD2, decode_site(0, 12, 4));
  CHECK(sites.claim({500, 900, 1}) == kD2);
  CHECK_FALSE(sites.claim({500, 1100, 1}));
}

// ---------------------------------------------------------------- load and prefix

namespace {

std::vector<PrefixHash> beginning(size_t blocks) {
  const std::vector<TokenId> tokens(blocks * PrefixDirectory::kBlockTokens, 5);
  return prefix_chain({1, 1}, tokens, PrefixDirectory::kBlockTokens);
}

}  // namespace

TEST_CASE("an instance that was given the same beginning is preferred, as far as its load allows") {
  Sites sites = four_sites();
  const auto names = beginning(4);
  sites.note_prefix(names, kP2, kD2);
  const Need need{300, 400, 1};
  CHECK(sites.place(need).source == kP1);
  CHECK(sites.place(need, {}, names).source == kP2);
  CHECK(sites.place(need, {}, names).target == kD2);
  // 256 of 300 positions are there: worth 200 queued tokens and 3 running sequences, not more.
  sites.put(kP2, prefill_site(1, 200));
  sites.put(kD2, decode_site(1, 60, 3));
  CHECK(sites.place(need, {}, names).source == kP2);
  CHECK(sites.place(need, {}, names).target == kD2);
  sites.put(kP2, prefill_site(1, 300));
  sites.put(kD2, decode_site(1, 60, 5));
  CHECK(sites.place(need, {}, names).source == kP1);
  CHECK(sites.place(need, {}, names).target == kD1);
}

TEST_CASE("what has no room, is kept for another, or has died is not chosen for its prefix") {
  Sites sites = four_sites();
  const auto names = beginning(4);
  const Need need{300, 400, 1};
  sites.note_prefix(names, kP2, kD2);
  CHECK(sites.place(need, kD2, names).target == kD1);
  sites.put(kP2, prefill_site(2, 0));
  sites.put(kD2, decode_site(0, 60, 4));
  CHECK(sites.place(need, {}, names).source == kP1);
  CHECK(sites.place(need, {}, names).target == kD1);
  sites.put(kD2, decode_site(4, 10));
  CHECK(sites.place(need, {}, names).target == kD1);
  sites.erase(kP2);
  sites.erase(kD2);
  sites.put(kP2, prefill_site());
  sites.put(kD2, decode_site(4, 60));
  CHECK(sites.place(need, {}, names).source == kP1);  // its next life knows nothing of it
  CHECK(sites.place(need, {}, names).target == kD1);
}

// ---------------------------------------------------------------- local prefill

TEST_CASE("a short prompt goes to a decode instance alone when every prefill window is full") {
  using Mode = LocalPrefillPolicy::Mode;
  Sites sites({Mode::automatic, 0});
  sites.put(kP1, prefill_site(2, 200));
  sites.put(kD1, decode_site(4, 60));
  const Need brief{50, 80, 1, 0, true};
  const Place placed = sites.place(brief);
  CHECK(placed.outcome == PlaceOutcome::placed);
  CHECK_FALSE(placed.source);
  CHECK(placed.target == kD1);
  CHECK(placed.local_tokens == UINT32_MAX);  // nobody else is there to compute it
  CHECK(sites.place({400, 500, 1, 0, true}).outcome == PlaceOutcome::prefill_full);
  CHECK(sites.place({50, 80, 1, 0, false}).outcome == PlaceOutcome::prefill_full);
  CHECK_FALSE(sites.full());
}

TEST_CASE(
    "with room in its window the prefill instance is chosen, and the rule says up to which hit") {
  using Mode = LocalPrefillPolicy::Mode;
  Sites sites({Mode::automatic, 0});
  sites.put(kP1, prefill_site(1, 100));
  sites.put(kD1, decode_site(4, 60));
  const Place placed = sites.place({300, 400, 1, 0, true});
  CHECK(placed.source == kP1);
  CHECK(placed.local_tokens == 100);
  CHECK(sites.place({300, 400, 1, 0, false}).local_tokens == 0);
}

TEST_CASE("without a prefill instance everything goes to decode instances, if that is allowed") {
  using Mode = LocalPrefillPolicy::Mode;
  Sites allowed({Mode::automatic, 0});
  allowed.put(kD1, decode_site(4, 60));
  CHECK(allowed.serving());
  const Place placed = allowed.place({800, 900, 1, 0, true});
  CHECK(placed.outcome == PlaceOutcome::placed);
  CHECK_FALSE(placed.source);
  CHECK(placed.local_tokens == UINT32_MAX);
  CHECK(allowed.place({800, 900, 1, 0, false}).outcome == PlaceOutcome::impossible);
  Sites forbidden;
  forbidden.put(kD1, decode_site(4, 60));
  CHECK_FALSE(forbidden.serving());
  CHECK(forbidden.place({800, 900, 1, 0, true}).outcome == PlaceOutcome::impossible);
}
