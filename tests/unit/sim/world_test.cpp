#include "runtime/sim/world.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "runtime/sim/network.h"

namespace baton {
namespace {

struct Ping {
  static constexpr MsgKind kind = MsgKind::cluster_query;
  uint32_t value = 0;
  BATON_FIELDS(value)
};
struct Pong {
  static constexpr MsgKind kind = MsgKind::cluster_reply;
  uint32_t value = 0;
  BATON_FIELDS(value)
};

const ActorId kOne{0, 1, 0};
const ActorId kTwo{1, 2, 0};

// Answers pings; sends one to its peer every millisecond if it has one.
class Player final
    : public ActorOf<Player, MessageList<Ping, Pong, Timer, Undeliverable, LinkDown, ActorDown>> {
 public:
  Player(std::vector<std::string>& log, std::optional<ActorId> peer) : log_(log), peer_(peer) {}
  void start(Context& context) override {
    if (peer_) context.set_timer(kMillisecond, 1);
  }
  void on(Context& context, const Envelope&, Timer&) {
    ++count_;
    context.send(*peer_, Ping{count_}, {.request = {count_}});
    context.set_timer(kMillisecond, 1);
  }
  void on(Context& context, const Envelope& from, Ping& ping) {
    log_.push_back("ping " + std::to_string(ping.value));
    context.send(from.from, Pong{ping.value});
  }
  void on(Context&, const Envelope&, Pong& pong) {
    log_.push_back("pong " + std::to_string(pong.value));
  }
  void on(Context&, const Envelope&, Undeliverable&) { log_.push_back("undeliverable"); }
  void on(Context&, const Envelope&, LinkDown& down) {
    log_.push_back("link down " + std::to_string(down.rank));
  }
  void on(Context&, const Envelope&, ActorDown&) {}

 private:
  std::vector<std::string>& log_;
  std::optional<ActorId> peer_;
  uint32_t count_ = 0;
};

struct Game {
  explicit Game(uint64_t seed, std::function<void(const std::string&)> trace = {})
      : world({seed, Limits{}, std::move(trace)}) {
    world.add_host(0, [this](SimHost& host) {
      host.set_control_link(&host.own<DirectLink>(host));
      host.add_actor(1, [this] { return std::make_unique<Player>(log, kTwo); });
    });
    world.add_host(1, [this](SimHost& host) {
      host.set_control_link(&host.own<DirectLink>(host));
      host.add_actor(2, [this] { return std::make_unique<Player>(log, std::nullopt); });
    });
  }
  size_t count(const std::string& line) const {
    return static_cast<size_t>(std::count(log.begin(), log.end(), line));
  }
  std::vector<std::string> log;
  World world;
};

TEST_CASE("a message can be awaited by kind, sender and receiver") {
  Game game(1);
  const auto ping = game.world.expect<Ping>(kOne, kTwo);
  REQUIRE(ping);
  CHECK(ping->message.value == 1);
  CHECK(ping->envelope.request == RequestId{1});
  CHECK(game.world.now() >= kMillisecond);
  REQUIRE(game.world.expect<Pong>(kTwo, kOne));
  CHECK_FALSE(game.world.expect<Pong>(kOne, kTwo, 10 * kMillisecond));
}

TEST_CASE("the same seed gives the same run, another seed another one") {
  auto run = [](uint64_t seed) {
    Game game(seed);
    game.world.advance(50 * kMillisecond);
    return game.world.trace_hash();
  };
  CHECK(run(7) == run(7));
  CHECK(run(7) != run(8));
}

TEST_CASE("a stalled process handles nothing while the clock runs, and then all that came") {
  Game game(1);
  game.world.advance(2500);
  const size_t before = game.log.size();
  game.world.stall(1, 20 * kMillisecond);
  game.world.advance(15 * kMillisecond);
  CHECK(game.log.size() == before);
  CHECK(game.world.is_stalled(1));
  game.world.advance(10 * kMillisecond);
  CHECK(game.log.size() > before + 15);
}

TEST_CASE("a crashed process loses everything and comes back under later incarnations") {
  Game game(1);
  game.world.advance(2500);
  const uint32_t first = game.world.host(1).supervisor().incarnation(2);
  game.world.crash(1);
  CHECK_FALSE(game.world.is_up(1));
  game.world.advance(5 * kMillisecond);
  CHECK(game.count("link down 1") == 1);
  game.world.restart(1);
  CHECK(game.world.host(1).supervisor().incarnation(2) > first);
  const size_t pings = game.log.size();
  game.world.advance(5 * kMillisecond);
  CHECK(game.log.size() > pings);
}

TEST_CASE("a process can be made to crash at a message, or an actor to fail at one") {
  Game game(1);
  int pings = 0;
  game.world.set_interference([&](const Mail& mail) {
    if (mail.envelope.kind != Ping::kind) return Interference::none;
    ++pings;
    if (pings == 2) return Interference::fail_actor;
    return pings == 4 ? Interference::crash_process : Interference::none;
  });
  game.world.advance(10 * kMillisecond);
  CHECK(pings == 4);
  CHECK_FALSE(game.world.is_up(1));
  CHECK(game.count("ping 1") == 1);
  CHECK(game.count("ping 2") == 0);
  CHECK(game.count("ping 3") == 1);
}

TEST_CASE("an actor that fails too often ends its process") {
  Game game(1);
  game.world.set_interference([&](const Mail& mail) {
    return mail.envelope.kind == Ping::kind ? Interference::fail_actor : Interference::none;
  });
  game.world.advance(20 * kMillisecond);
  CHECK(game.world.escalations().size() == 1);
  CHECK_FALSE(game.world.is_up(1));
}

TEST_CASE("mail can be lost and changed on its way") {
  Game game(1);
  game.world.set_tamper([](Mail& mail) {
    if (mail.envelope.kind == Ping::kind) mail.body = encode_body(Ping{99});
    return mail.envelope.kind != Pong::kind;
  });
  game.world.advance(5 * kMillisecond);
  CHECK(game.count("ping 99") > 0);
  CHECK(game.count("pong 99") == 0);
}

TEST_CASE("the trace has a line for each delivery and each fault") {
  std::vector<std::string> lines;
  Game game(1, [&](const std::string& line) { lines.push_back(line); });
  game.world.advance(1500);
  game.world.crash(1);
  CHECK(lines.back().find("** crash of rank 1") != std::string::npos);
  CHECK(std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
    return line.find("0/1.1001 -> 1/2.0 cluster_query request 1") != std::string::npos;
  }));
}

TEST_CASE("work of the pool comes back later") {
  Game game(1);
  game.world.advance(100);
  bool ran = false;
  REQUIRE(game.world.host(1).workers().run([&] {
    ran = true;
    Mail mail;
    mail.envelope.kind = Pong::kind;
    mail.envelope.to = kTwo;
    mail.body = encode_body(Pong{5});
    return mail;
  }));
  CHECK_FALSE(ran);
  game.world.advance(5 * kMillisecond);
  CHECK(game.count("pong 5") == 1);
}

TEST_CASE("a network loses, repeats, delays and reorders, and can be cut one way") {
  World world({3, Limits{}, {}});
  for (uint32_t rank : {0u, 1u}) world.add_host(rank, [](SimHost&) {});
  Network network(world);
  std::vector<int> arrived;
  auto send = [&](int value) {
    network.send(0, 1, [&arrived, value] { arrived.push_back(value); });
  };
  for (int i = 0; i < 100; ++i) send(i);
  world.advance(kMillisecond);
  CHECK(arrived.size() == 100);
  CHECK_FALSE(std::is_sorted(arrived.begin(), arrived.end()));

  arrived.clear();
  network.set_faults({20, 200, 0.3, 0.3, 0, 0});
  for (int i = 0; i < 1000; ++i) send(i);
  world.advance(kMillisecond);
  std::sort(arrived.begin(), arrived.end());
  const bool repeated = std::adjacent_find(arrived.begin(), arrived.end()) != arrived.end();
  arrived.erase(std::unique(arrived.begin(), arrived.end()), arrived.end());
  CHECK(repeated);
  CHECK(arrived.size() < 900);
  CHECK(arrived.size() > 600);

  network.heal();
  arrived.clear();
  network.cut(0, 1, 5 * kMillisecond);
  int back = 0;
  send(1);
  network.send(1, 0, [&] { ++back; });
  world.advance(kMillisecond);
  CHECK(arrived.empty());
  CHECK(back == 1);
  world.advance(5 * kMillisecond);
  network.clog(0, 1, 3 * kMillisecond);
  send(2);
  world.advance(2 * kMillisecond);
  CHECK(arrived.empty());
  world.advance(2 * kMillisecond);
  CHECK(arrived == std::vector<int>{2});
}

}  // namespace
}  // namespace baton
