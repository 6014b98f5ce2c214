#include <random>

#include "actors/decode/incoming.h"
#include "actors/decode/retained.h"
#include "actors/decode/slots.h"
#include "actors/decode/withdrawn_memory.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

TokenEntry entry(uint64_t request, uint32_t seq, uint32_t epoch = 1) {
  TokenEntry e;
  e.request = {request};
  e.epoch = {epoch};
  e.seq = seq;
  e.id = static_cast<TokenId>(100 + seq);
  return e;
}

constexpr ActorId kGateway{0, kGatewaySlot, 1};

}  // namespace

TEST_CASE("S7: each owner of a slot has its own generation") {
  Slots slots(2);
  const SlotLease first = *slots.take();
  const SlotLease second = *slots.take();
  CHECK(first.slot.value == 0);
  CHECK(second.slot.value == 1);
  CHECK(!slots.take());
  slots.give_back(first);
  CHECK(!slots.holds(first));
  const SlotLease again = *slots.take();
  CHECK(again.slot == first.slot);
  CHECK(again.generation != first.generation);
  CHECK(!slots.holds(first));
  CHECK(slots.holds(again));
  CHECK(!slots.holds({{9}, {1}}));
}

TEST_CASE("entries are kept until they are acknowledged") {
  Retained retained(10);
  retained.open({1}, 0, {1}, kGateway, 0);
  for (uint32_t seq = 0; seq < 5; ++seq) retained.add(entry(1, seq));
  CHECK(retained.find({1}, 0, {1})->ahead() == 5);
  CHECK(retained.ack({1}, 0, {1}, 3) == Retained::Ack::taken);
  CHECK(retained.find({1}, 0, {1})->ahead() == 2);
  CHECK(retained.from({1}, 0, {1}, 0).size() == 2);
  CHECK(retained.from({1}, 0, {1}, 4).size() == 1);
  CHECK(retained.from({1}, 0, {2}, 0).empty());
  CHECK(retained.ack({1}, 0, {2}, 5) == Retained::Ack::unknown);
  CHECK(retained.ack({1}, 0, {1}, 2) == Retained::Ack::taken);  // late: goes back nowhere
  CHECK(retained.find({1}, 0, {1})->acked == 3);
  CHECK(retained.ack({1}, 0, {1}, 500) == Retained::Ack::taken);  // more than was sent
  CHECK(retained.find({1}, 0, {1})->acked == 5);
}

TEST_CASE("a stream that ended is kept until its end is acknowledged, or for a lease") {
  Retained retained(10);
  retained.open({1}, 0, {1}, kGateway, 2);
  retained.add(entry(1, 2));
  retained.add(entry(1, 3));
  retained.end({1}, 0, {1}, 1000);
  CHECK(retained.ack({1}, 0, {1}, 3) == Retained::Ack::taken);
  CHECK(retained.size() == 1);
  retained.drop_ended(900);
  CHECK(retained.size() == 1);
  SUBCASE("acknowledged") {
    retained.ack({1}, 0, {1}, 4);
  }
  SUBCASE("too old") {
    retained.drop_ended(1001);
  }
  SUBCASE("cancelled") {
    retained.drop({1}, {1});
  }
  CHECK(retained.size() == 0);
}

TEST_CASE("an end without a token is sent again like any entry") {
  Retained retained(10);
  retained.open({1}, 0, {1}, kGateway, 0);
  retained.add(entry(1, 0));
  TokenEntry mark = entry(1, 1);
  mark.has_token = false;
  mark.finish = Finish::error;
  retained.add(mark);
  retained.end({1}, 0, {1}, 5);
  CHECK(retained.from({1}, 0, {1}, 0).size() == 2);
  CHECK(retained.from({1}, 0, {1}, 1).size() == 1);
  retained.ack({1}, 0, {1}, 1);
  CHECK(retained.size() == 0);
}

TEST_CASE("a new life replaces the old one, and dropping goes by epoch") {
  Retained retained(10);
  retained.open({1}, 0, {1}, kGateway, 0);
  retained.add(entry(1, 0));
  retained.open({1}, 0, {2}, kGateway, 0);
  CHECK(retained.find({1}, 0, {1}) == nullptr);
  retained.add(entry(1, 0, 1));  // of the old life: not kept
  CHECK(retained.find({1}, 0, {2})->entries.empty());
  retained.drop({1}, {1});
  CHECK(retained.size() == 1);
  retained.drop({1}, {2});
  CHECK(retained.size() == 0);
}

TEST_CASE("no more ended streams are kept than the limit; the oldest goes") {
  Retained retained(2);
  for (uint64_t request = 1; request <= 4; ++request) {
    retained.open({request}, 0, {1}, kGateway, 0);
    retained.add(entry(request, 0));
    retained.end({request}, 0, {1}, static_cast<Micros>(request));
  }
  CHECK(retained.size() == 2);
  CHECK(retained.find({2}, 0, {1}) == nullptr);
  CHECK(retained.find({4}, 0, {1}) != nullptr);
}

TEST_CASE("withdrawn pieces are remembered once and the oldest are forgotten") {
  WithdrawnMemory memory(2);
  for (uint64_t i = 1; i <= 3; ++i)
    memory.note({i}, {KvPiece{0, static_cast<uint32_t>(i), {}, 0, 0}});
  CHECK(!memory.take({1}));
  REQUIRE(memory.take({2}));
  CHECK(!memory.take({2}));
  CHECK((*memory.take({3}))[0].tag == 3);
  CHECK(memory.size() == 0);
}

TEST_CASE("row 43: a hand-off record that does not fit its reservation is refused") {
  Incoming incoming;
  incoming.request = {4};
  incoming.epoch = {1};
  incoming.tokens = 5;
  incoming.slots = {{{0}, {1}}};
  Adopt adopt;
  adopt.prompt = {1, 2, 3};
  adopt.committed = {{4, 5}};
  adopt.first = {entry(4, 2)};
  CHECK(check_adopt(incoming, adopt).ok());
  const auto refused = [&](auto change) {
    Adopt changed = adopt;
    change(changed);
    return !check_adopt(incoming, changed).ok();
  };
  CHECK(refused([](Adopt& a) { a.pieces = 1; }));
  CHECK(refused([](Adopt& a) { a.prompt.push_back(1); }));
  CHECK(refused([](Adopt& a) { a.committed.clear(); }));
  CHECK(refused([](Adopt& a) { a.committed.push_back({}); }));
  CHECK(refused([](Adopt& a) { a.first.clear(); }));
  CHECK(refused([](Adopt& a) { a.first.push_back(a.first[0]); }));
  CHECK(refused([](Adopt& a) { a.first[0].seq = 1; }));
  CHECK(refused([](Adopt& a) { a.first[0].request = {5}; }));
  CHECK(refused([](Adopt& a) { a.first[0].epoch = {2}; }));
  CHECK(refused([](Adopt& a) { a.first[0].has_token = false; }));

  // Two choices: the transfer brings the prompt alone, and one of them goes on from what it has.
  incoming.tokens = 3;
  incoming.slots.push_back({{1}, {1}});
  adopt.committed = {{4, 5}, {}};
  adopt.first = {entry(4, 2), entry(4, 0)};
  adopt.first[0].has_token = false;
  adopt.first[1].choice = 2;
  CHECK(check_adopt(incoming, adopt).ok());
  CHECK(refused([](Adopt& a) { a.first[1].choice = 0; }));
  CHECK(refused([](Adopt& a) { a.first[1].has_token = false; }));
  CHECK(refused([](Adopt& a) { a.first[1].seq = 1; }));
  CHECK(refused([](Adopt& a) { a.first.pop_back(); }));
  CHECK(refused([](Adopt& a) { a.committed.pop_back(); }));
  CHECK(refused([](Adopt& a) { a.prompt.push_back(1); }));
}

}  // namespace baton
