#include "actors/scheduler/lease_ledger.h"

#include <vector>

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr WorkerKey kDecode{2, 4};
constexpr WorkerKey kOther{3, 4};

using Counts = std::array<uint64_t, 4>;  // free, reserved, active, quarantined

SlotLease slot(uint32_t number, uint32_t generation) {
  return {{number}, {generation}};
}

LeaseLedger two_instances() {
  LeaseLedger leases;
  leases.join(kDecode, 2, 10);
  leases.join(kOther, 1, 5);
  return leases;
}

}  // namespace

TEST_CASE("a lease goes FREE, RESERVED, ACTIVE, QUARANTINED, FREE") {
  LeaseLedger leases = two_instances();
  CHECK(leases.slots_by_state() == Counts{3, 0, 0, 0});
  leases.reserve({1}, kDecode, 1, 4);
  CHECK(leases.state({1}) == LeaseState::reserved);
  CHECK(leases.slots_by_state() == Counts{2, 1, 0, 0});
  REQUIRE(leases.confirm({1}, {slot(0, 7)}, 4));
  leases.activate({1});
  CHECK(leases.slots_by_state() == Counts{2, 0, 1, 0});
  leases.quarantine({1}, 100);
  CHECK(leases.slots_by_state() == Counts{2, 0, 0, 1});
  const LeaseLedger::Credit credit = leases.credit_slot(kDecode, slot(0, 7));
  CHECK(credit.credited);
  CHECK(credit.last);
  CHECK(credit.transfer == TransferId{1});
  CHECK(leases.state({1}) == LeaseState::free);
  CHECK(leases.slots_by_state() == Counts{3, 0, 0, 0});
}

TEST_CASE("a late SlotFreed of an old generation credits nothing, and none credits twice") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 1, 1);
  REQUIRE(leases.confirm({1}, {slot(0, 7)}, 1));
  CHECK(leases.credit_slot(kDecode, slot(0, 7)).credited);
  CHECK_FALSE(leases.credit_slot(kDecode, slot(0, 7)).credited);

  leases.reserve({2}, kDecode, 1, 1);
  REQUIRE(leases.confirm({2}, {slot(0, 8)}, 1));
  CHECK_FALSE(leases.credit_slot(kDecode, slot(0, 7)).credited);
  CHECK(leases.slots_by_state() == Counts{2, 1, 0, 0});
  CHECK_FALSE(leases.credit_slot(kOther, slot(0, 8)).credited);
  CHECK_FALSE(leases.credit_slot({9, 9}, slot(0, 8)).credited);
  CHECK(leases.credit_slot(kDecode, slot(0, 8)).credited);
}

TEST_CASE("room counts what was asked for but not answered yet") {
  LeaseLedger leases = two_instances();
  CHECK(leases.room(kDecode) == LeaseRoom{2, 10, 0});
  leases.reserve({1}, kDecode, 1, 4);
  CHECK(leases.room(kDecode) == LeaseRoom{1, 6, 1});
  // The answer says how many blocks it really took.
  REQUIRE(leases.confirm({1}, {slot(0, 1)}, 5));
  CHECK(leases.room(kDecode) == LeaseRoom{1, 5, 1});
  // Decoding takes more, which the next beat tells.
  leases.report(kDecode, 1, 3);
  CHECK(leases.room(kDecode) == LeaseRoom{1, 3, 1});
  leases.reserve({2}, kDecode, 1, 2);
  CHECK(leases.room(kDecode) == LeaseRoom{0, 1, 2});
  // A beat sent before the second Reserve arrived does not give its blocks back.
  leases.report(kDecode, 1, 3);
  CHECK(leases.room(kDecode) == LeaseRoom{0, 1, 2});
}

TEST_CASE("a refused reservation gives everything back, whenever the refusal comes") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 2, 4);
  leases.quarantine({1}, 5);
  CHECK(leases.credit_refused({1}));
  CHECK_FALSE(leases.credit_refused({1}));
  CHECK(leases.room(kDecode) == LeaseRoom{2, 10, 0});
  CHECK(leases.reclaim(1000).empty());
}

TEST_CASE("Reserved that crossed with Release names the slots of a lease in quarantine") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 1, 4);
  leases.quarantine({1}, 5);
  REQUIRE(leases.confirm({1}, {slot(1, 3)}, 4));
  leases.activate({1});
  CHECK(leases.state({1}) == LeaseState::quarantined);
  CHECK(leases.credit_slot(kDecode, slot(1, 3)).last);
}

TEST_CASE("an answer with another number of slots, or a second one, is not taken") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 1, 4);
  CHECK_FALSE(leases.confirm({1}, {slot(0, 1), slot(1, 1)}, 4));
  CHECK_FALSE(leases.confirm({2}, {slot(0, 1)}, 4));
  CHECK(leases.confirm({1}, {slot(0, 1)}, 4));
  CHECK_FALSE(leases.confirm({1}, {slot(0, 1)}, 4));
}

TEST_CASE("with several choices the last slot to come home ends the lease") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 2, 4);
  REQUIRE(leases.confirm({1}, {slot(0, 1), slot(1, 1)}, 4));
  leases.activate({1});
  const LeaseLedger::Credit first = leases.credit_slot(kDecode, slot(1, 1));
  CHECK(first.credited);
  CHECK_FALSE(first.last);
  CHECK(leases.slots_by_state() == Counts{2, 0, 1, 0});
  CHECK(leases.credit_slot(kDecode, slot(0, 1)).last);
}

TEST_CASE("the end of an instance's life ends its leases and no others") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 1, 1);
  leases.reserve({2}, kOther, 1, 1);
  leases.quarantine({1}, 3);
  leases.leave(kDecode);
  CHECK_FALSE(leases.holds({1}));
  CHECK(leases.holds({2}));
  CHECK(leases.slots_by_state() == Counts{0, 1, 0, 0});
  CHECK(leases.room(kDecode) == LeaseRoom{});
  leases.join(kDecode, 2, 10);
  CHECK(leases.room(kDecode) == LeaseRoom{2, 10, 0});
  CHECK(leases.reclaim(1000).empty());
}

TEST_CASE("T1: what stays in quarantine too long is reclaimed, and a late signal is ignored") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 1, 1);
  REQUIRE(leases.confirm({1}, {slot(0, 1)}, 1));
  leases.reserve({2}, kDecode, 1, 1);
  REQUIRE(leases.confirm({2}, {slot(1, 1)}, 1));
  leases.quarantine({1}, 100);
  leases.quarantine({2}, 200);
  CHECK(leases.reclaim(100).empty());
  CHECK(leases.reclaim(150) == std::vector<WorkerKey>{kDecode});
  CHECK(leases.reclaimed() == 1);
  CHECK_FALSE(leases.holds({1}));
  CHECK(leases.holds({2}));
  CHECK_FALSE(leases.credit_slot(kDecode, slot(0, 1)).credited);
  // The decode actor has not said that the slot is free, so none is promised on its behalf.
  CHECK(leases.room(kDecode).slots == 0);
  leases.report(kDecode, 1, 9);
  CHECK(leases.room(kDecode).slots == 1);
}

TEST_CASE("a slot that its instance gives to somebody else is the new owner's") {
  LeaseLedger leases = two_instances();
  leases.reserve({1}, kDecode, 1, 1);
  REQUIRE(leases.confirm({1}, {slot(0, 1)}, 1));
  leases.reserve({2}, kDecode, 1, 1);
  REQUIRE(leases.confirm({2}, {slot(0, 2)}, 1));
  CHECK_FALSE(leases.holds({1}));
  CHECK(leases.owner(kDecode, slot(0, 2)) == TransferId{2});
  CHECK_FALSE(leases.owner(kDecode, slot(0, 1)));
  CHECK(leases.slots_by_state() == Counts{2, 1, 0, 0});
}
