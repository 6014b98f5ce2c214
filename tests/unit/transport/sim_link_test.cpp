#include "transport/sim/sim_link.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

struct Note {
  static constexpr MsgKind kind = MsgKind::tokens;
  uint32_t value = 0;
  BATON_FIELDS(value)
};

struct Heard {
  std::vector<uint32_t> values;
  int ups = 0;
  int downs = 0;
};

// Sends 1, 2, 3, ... to its peer, ten a millisecond, and writes down what it hears.
class Talker final : public ActorOf<Talker, MessageList<Note, Timer, LinkUp, LinkDown>> {
 public:
  Talker(Heard& heard, ActorId peer, uint32_t count) : heard_(heard), peer_(peer), left_(count) {}
  void start(Context& context) override { context.set_timer(100, 1); }
  void on(Context& context, const Envelope&, Timer&) {
    if (left_-- == 0) return;
    context.send(peer_, Note{++said_});
    context.set_timer(100, 1);
  }
  void on(Context&, const Envelope&, Note& note) { heard_.values.push_back(note.value); }
  void on(Context&, const Envelope&, LinkUp&) { ++heard_.ups; }
  void on(Context&, const Envelope&, LinkDown&) { ++heard_.downs; }

 private:
  Heard& heard_;
  const ActorId peer_;
  uint32_t left_;
  uint32_t said_ = 0;
};

struct Pair {
  World world;
  Network network{world};
  SimSwitch connections{world, network};
  Heard heard[2];

  Pair(uint64_t seed, uint32_t count) : world({seed, Limits{}, {}}) {
    for (uint32_t rank : {0u, 1u}) {
      world.add_host(rank, [this, rank, count](SimHost& host) {
        host.set_control_link(&host.own<SimLink>(connections, host));
        host.add_actor(1, [this, rank, count] {
          return std::make_unique<Talker>(heard[rank], ActorId{1 - rank, 1, kAnyIncarnation},
                                          count);
        });
      });
    }
  }
  ~Pair() { world.end(); }
  bool in_order(uint32_t rank, uint32_t count) const {
    if (heard[rank].values.size() != count) return false;
    for (uint32_t i = 0; i < count; ++i) {
      if (heard[rank].values[i] != i + 1) return false;
    }
    return true;
  }
};

TEST_CASE("mail arrives once and in order over a network that loses, repeats and reorders") {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Pair pair(seed, 300);
    pair.network.set_faults({20, 3000, 0.2, 0.2, 0.05, 50 * kMillisecond});
    pair.world.advance(30 * kSecond);
    CHECK(pair.in_order(0, 300));
    CHECK(pair.in_order(1, 300));
    CHECK(pair.heard[0].downs == 0);
  }
}

TEST_CASE("a cut that ends in time loses nothing") {
  Pair pair(2, 300);
  pair.world.advance(5 * kMillisecond);
  pair.network.cut(0, 1, 2 * kSecond);
  pair.world.advance(10 * kSecond);
  CHECK(pair.in_order(0, 300));
  CHECK(pair.in_order(1, 300));
}

TEST_CASE("a crash is heard of at once, and the next life has a session of its own") {
  Pair pair(3, 100000);
  pair.world.advance(20 * kMillisecond);
  CHECK(pair.heard[0].ups == 1);
  pair.world.crash(1);
  pair.world.advance(10 * kMillisecond);
  CHECK(pair.heard[0].downs == 1);
  pair.heard[0].values.clear();
  pair.world.restart(1);
  pair.world.advance(50 * kMillisecond);
  CHECK(pair.heard[0].ups == 2);
  REQUIRE_FALSE(pair.heard[0].values.empty());
  CHECK(pair.heard[0].values.front() == 1);
}

}  // namespace
}  // namespace baton
