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
    KvTransfer made{kTransfer, peer, {1}, {1}, {}};
    for (uint32_t i = 0; i < blocks.size(); ++i) {
      made.pieces.push_back({i, 100 + i, {{blocks[i]}}, kGeometry.block_bytes(), 0});
    }
    return made;
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

TEST_CASE("a flipped bit shows in the digest, and a broken transfer ends on both sides") {
  Floor flipped({.corrupt = 1});
  flipped.expect_two();
  flipped.send_two();
  flipped.world.advance(20 * kMillisecond);
  REQUIRE(flipped.received(0));
  CHECK(flipped.received(0)->ok);
  CHECK(flipped.received(0)->digest != flipped.source.pool.hash({0}));

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
