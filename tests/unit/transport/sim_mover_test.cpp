#include "transport/sim/sim_mover.h"

#include <doctest/doctest.h>

#include <optional>

#include "tests/unit/transport/mover_fixture.h"

namespace baton {
namespace {

using test::MemoryPool;
using test::PieceEnds;

constexpr KvGeometry kGeometry{1, 1, 2, 16, KvDtype::f32, InnerLayout::cpu_pairs};
const ActorId kSource{1, 3, 1};
const ActorId kTarget{2, 4, 1};
const TransferId kTransfer{9};

// Hears the ends of pieces, and nothing else.
class Owner final : public Actor {
 public:
  explicit Owner(PieceEnds& ends) : ends_(ends) {}
  bool receive(Context&, const Mail& mail) override {
    ends_.take(mail);
    return true;
  }

 private:
  PieceEnds& ends_;
};

struct Place {
  MemoryPool pool{kGeometry, 8};
  PieceEnds ends;
  SimMover* mover = nullptr;
};

struct Floor {
  World world;
  SimFabric fabric{world};
  Place source, target;

  explicit Floor(const FabricFaults& faults = {}) : world({5, Limits{}, {}}) {
    fabric.set_faults(faults);
    source.pool.fill(1);
    target.pool.fill(2);
    add(1, 3, source);
    add(2, 4, target);
    world.advance(1);
  }
  ~Floor() { world.end(); }
  void add(uint32_t rank, uint32_t slot, Place& place) {
    world.add_host(rank, [this, slot, &place](SimHost& host) {
      place.mover = &host.own<SimMover>(fabric, host, place.pool.store(), SimMover::Options{});
      host.add_actor(slot, [&place] { return std::make_unique<Owner>(place.ends); });
    });
  }
  KvTransfer transfer(const ActorId& peer, std::vector<uint32_t> blocks) {
    std::vector<BlockId> table;
    for (uint32_t block : blocks) table.push_back({block});
    return test::make_transfer(kTransfer.value, peer, table, kGeometry, kGeometry.block_bytes(),
                               100);
  }
  void expect_two() {
    REQUIRE(target.mover->expect(transfer({1, 3, 1}, {4, 5}), {2, 4, kAnyIncarnation}).ok());
  }
  void send_two() {
    REQUIRE(source.mover->send(transfer({2, 4, 1}, {0, 1}), {1, 3, kAnyIncarnation}).ok());
  }
  std::optional<KvReceived> received(uint32_t piece) {
    const auto ends = target.ends.received();
    const auto found = ends.find({kTransfer, piece});
    return found == ends.end() ? std::nullopt : std::optional(found->second);
  }
  std::optional<KvSent> sent(uint32_t piece) {
    const auto ends = source.ends.sent();
    const auto found = ends.find({kTransfer, piece});
    return found == ends.end() ? std::nullopt : std::optional(found->second);
  }
};

TEST_CASE("pieces move between two processes, whichever side comes first") {
  for (bool send_first : {false, true}) {
    Floor floor;
    if (send_first) floor.send_two();
    floor.world.advance(kMillisecond);
    floor.expect_two();
    CHECK(floor.target.mover->busy_blocks().size() == 2);
    if (!send_first) floor.send_two();
    floor.world.advance(20 * kMillisecond);
    for (uint32_t piece : {0u, 1u}) {
      REQUIRE(floor.received(piece));
      CHECK(floor.received(piece)->ok);
      CHECK(floor.received(piece)->digest == floor.source.pool.hash({piece}));
      CHECK(floor.sent(piece)->ok);
      CHECK(floor.source.pool.same({piece}, floor.target.pool, {4 + piece}));
    }
    CHECK(floor.target.mover->busy_blocks().empty());
    CHECK(floor.fabric.written_blocks(*floor.target.mover).empty());
  }
}

TEST_CASE("reshards move every element between the pools of all ranks") {
  test::PlacementMaker make(31);
  for (int i = 0; i < 100; ++i) {
    CAPTURE(i);
    const KvShape shape = make.shape();
    const auto dtype = static_cast<KvDtype>(make.roll(0, 2));
    const uint32_t tokens = make.roll(1, 90);
    auto a = test::KvInstance::make(make.placement(shape, dtype), tokens, make);
    auto b = test::KvInstance::make(make.placement(shape, static_cast<KvDtype>(make.roll(0, 2))),
                                    tokens, make);
    a.fill(tokens);
    const auto plan = test::plan_between(a.placement, b.placement, {make.roll(1, 3), 2048, true});
    const uint32_t size = b.placement.block_tokens;
    const uint32_t from = make.roll(0, tokens / size) * size;
    World world({static_cast<uint64_t>(i), Limits{}, {}});
    SimFabric fabric(world);
    PieceEnds ends;
    SimMover* movers[2] = {};
    test::KvInstance* sides[2] = {&a, &b};
    for (uint32_t side : {0u, 1u}) {
      world.add_host(side + 1, [&, side](SimHost& host) {
        SimMover::Options options;
        options.pieces_max = 4096;
        movers[side] =
            &host.own<SimMover>(fabric, host, test::store_of_instance(*sides[side]), options);
        host.add_actor(3, [&ends] { return std::make_unique<Owner>(ends); });
      });
    }
    world.advance(1);
    const auto sends =
        test::make_transfer(9, {2, 3, 1}, plan, KvDirection::send, from, tokens, a.table, 100);
    const auto receives =
        test::make_transfer(9, {1, 3, 1}, plan, KvDirection::receive, from, tokens, b.table, 100);
    REQUIRE(movers[1]->expect(receives, {2, 3, kAnyIncarnation}).ok());
    REQUIRE(movers[0]->send(sends, {1, 3, kAnyIncarnation}).ok());
    world.advance(kSecond);
    CHECK(ends.received().size() == sends.pieces.size());
    for (const auto& [key, end] : ends.received()) CHECK(end.digest == end.sent_digest);
    CHECK(test::wrong_elements(b, dtype, from, tokens) == 0);
    world.end();
  }
}

TEST_CASE("a flipped bit shows in the digest, and a broken transfer ends on both sides") {
  Floor flipped({.corrupt = 1});
  flipped.expect_two();
  flipped.send_two();
  flipped.world.advance(20 * kMillisecond);
  REQUIRE(flipped.received(0));
  CHECK(flipped.received(0)->ok);
  CHECK(flipped.received(0)->sent_digest == flipped.source.pool.hash({0}));
  CHECK(flipped.received(0)->digest != flipped.received(0)->sent_digest);

  Floor broken({.fail = 1});
  broken.expect_two();
  broken.send_two();
  broken.world.advance(20 * kMillisecond);
  REQUIRE(broken.received(0));
  CHECK_FALSE(broken.received(0)->ok);
  CHECK_FALSE(broken.sent(0)->ok);
}

TEST_CASE("a stalled sender writes late, and the blocks stay busy until then") {
  Floor floor;
  floor.expect_two();
  floor.send_two();
  floor.world.advance(20);
  floor.world.stall(1, kSecond);
  floor.target.mover->cancel(kTransfer);
  floor.target.mover->peer_down(1, 1);
  floor.world.advance(900 * kMillisecond);
  CHECK(floor.target.mover->busy_blocks().size() == 2);
  CHECK_FALSE(floor.received(0));
  floor.world.advance(200 * kMillisecond);
  CHECK(floor.received(0)->ok);
  CHECK(floor.target.mover->busy_blocks().empty());
}

TEST_CASE("a sender that dies in mid-transfer leaves half a piece, which ends when it is told") {
  Floor floor({.piece_us_min = 1000, .piece_us_max = 1000});
  floor.expect_two();
  floor.send_two();
  floor.world.advance(600);
  floor.world.crash(1);
  floor.world.advance(kSecond);
  CHECK_FALSE(floor.received(0));
  CHECK_FALSE(floor.source.pool.same({0}, floor.target.pool, {4}));
  floor.target.mover->peer_down(1, 1);
  floor.world.advance(2 * kSecond);
  REQUIRE(floor.received(0));
  CHECK_FALSE(floor.received(0)->ok);
  CHECK(floor.target.mover->busy_blocks().empty());
}

TEST_CASE("what waits can be withdrawn, and a send that cannot is drained") {
  Floor floor({.unwithdrawn = 1});
  floor.expect_two();
  floor.target.mover->cancel(kTransfer);
  floor.world.advance(kMillisecond);
  CHECK_FALSE(floor.received(0)->ok);
  floor.send_two();
  floor.source.mover->cancel(kTransfer);
  floor.world.advance(100 * kMillisecond);
  CHECK_FALSE(floor.sent(0));
  floor.target.mover->drain(floor.transfer({1, 3, 1}, {4, 5}));
  floor.world.advance(20 * kMillisecond);
  CHECK(floor.sent(0)->ok);
  CHECK(floor.source.mover->busy_blocks().empty());
}

TEST_CASE("sends to a dead peer end when it is told") {
  Floor floor;
  floor.send_two();
  floor.world.crash(2);
  floor.world.advance(kSecond);
  CHECK_FALSE(floor.sent(1));
  floor.source.mover->peer_down(2, 1);
  floor.world.advance(kMillisecond);
  CHECK_FALSE(floor.sent(1)->ok);
}

}  // namespace
}  // namespace baton
