#include "transport/control/link_session.h"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <utility>

using namespace baton;

namespace {

Mail text_mail(const std::string& text) {
  Mail mail;
  mail.envelope.kind = MsgKind::beat;
  mail.body = text;
  return mail;
}

LinkSessionOptions options_of(uint32_t self, uint32_t peer, uint32_t incarnation = 1) {
  LinkSessionOptions options;
  options.self_rank = self;
  options.peer_rank = peer;
  options.self_incarnation = incarnation;
  return options;
}

// What one side has told its actors, as text, in order.
std::vector<std::string> told(LinkSession& session) {
  std::vector<std::string> out;
  for (auto& event : session.take_events()) {
    if (auto* mail = std::get_if<Mail>(&event)) {
      out.push_back(mail->body);
    } else if (auto* up = std::get_if<LinkUp>(&event)) {
      out.push_back("up " + std::to_string(up->incarnation));
    } else {
      auto& down = std::get<LinkDown>(event);
      out.push_back(std::string(down.certain ? "down! " : "down ") +
                    std::to_string(down.incarnation));
    }
  }
  return out;
}

// Two ends joined by a perfect network.
struct Pair {
  LinkSession a{options_of(0, 1), 0};
  LinkSession b{options_of(1, 0), 0};
  Micros now = 0;

  size_t exchange() {
    size_t moved = 0;
    for (bool again = true; again;) {
      again = false;
      for (auto& packet : a.take_packets())
        b.receive(std::move(packet), now), again = true, ++moved;
      for (auto& packet : b.take_packets())
        a.receive(std::move(packet), now), again = true, ++moved;
    }
    return moved;
  }
};

using Strings = std::vector<std::string>;

}  // namespace

TEST_CASE("a link session greets first and then delivers mail in order, once") {
  Pair pair;
  pair.a.send(text_mail("one"), 0);
  pair.a.send(text_mail("two"), 0);
  CHECK_FALSE(pair.a.up());
  pair.exchange();
  CHECK(pair.a.up());
  CHECK(pair.b.up());
  CHECK(told(pair.b) == Strings{"up 1", "one", "two"});
  CHECK(told(pair.a) == Strings{"up 1"});
  CHECK(pair.a.unacked() == 2);
  pair.b.tick(pair.b.next_tick());
  pair.exchange();
  CHECK(pair.a.unacked() == 0);
  CHECK(pair.a.next_tick() == kNever);
  CHECK(pair.b.next_tick() == kNever);
}

TEST_CASE("an acknowledgement rides on mail that goes the other way") {
  Pair pair;
  pair.a.open(0);
  pair.exchange();
  pair.a.send(text_mail("question"), 0);
  pair.exchange();
  pair.b.send(text_mail("answer"), 0);
  CHECK(pair.exchange() == 1);
  CHECK(pair.a.unacked() == 0);
}

TEST_CASE("lost mail is sent again, and what arrives early waits for it") {
  Pair pair;
  pair.a.open(0);
  pair.exchange();
  told(pair.a), told(pair.b);
  for (auto text : {"1", "2", "3"}) pair.a.send(text_mail(text), 0);
  auto packets = pair.a.take_packets();
  REQUIRE(packets.size() == 3);
  pair.b.receive(packets[2], 0);
  pair.b.receive(packets[1], 0);
  CHECK(told(pair.b).empty());
  CHECK(pair.b.counters().reordered == 2);
  pair.now = pair.a.next_tick();
  pair.a.tick(pair.now);
  pair.exchange();
  CHECK(told(pair.b) == Strings{"1", "2", "3"});
  CHECK(pair.b.counters().duplicates == 2);
  CHECK(pair.a.counters().resent == 3);
}

TEST_CASE("a peer that never answers is given up: the link goes down and the mail is counted") {
  LinkSession a(options_of(0, 1), 0);
  a.send(text_mail("lost"), 5);
  a.take_packets();
  Micros now = 5;
  int greetings = 0;
  while (a.unacked() > 0 && now < 60 * kSecond) {
    now = a.next_tick();
    a.tick(now);
    greetings += static_cast<int>(a.take_packets().size());
  }
  CHECK(now == 5 + LinkSessionOptions{}.give_up_us);
  CHECK(greetings < 20);
  CHECK(told(a) == Strings{"down! 0"});
  CHECK(a.counters().lost == 1);
  CHECK(a.next_tick() == kNever);
}

TEST_CASE(
    "a peer that comes back as another process gets a new session, and none of the old mail") {
  Pair pair;
  pair.a.open(0);
  pair.exchange();
  told(pair.a);
  pair.a.send(text_mail("for the first life"), 0);
  const auto old_packets = pair.a.take_packets();
  pair.b = LinkSession(options_of(1, 0, 2), 0);
  pair.b.receive(old_packets[0], 0);
  CHECK(told(pair.b).empty());
  CHECK(pair.b.counters().stale == 1);
  pair.exchange();
  CHECK(told(pair.a) == Strings{"down! 1", "up 2"});
  CHECK(told(pair.b) == Strings{"up 1"});
  CHECK(pair.a.counters().lost == 1);
  pair.a.send(text_mail("for the second life"), 0);
  pair.exchange();
  CHECK(told(pair.b) == Strings{"for the second life"});
  pair.b.receive(old_packets[0], 0);
  pair.exchange();
  CHECK(told(pair.b).empty());
}

TEST_CASE("packets of an earlier life are dropped and counted") {
  Pair pair;
  pair.a.open(0);
  pair.exchange();
  pair.b.send(text_mail("late"), 0);
  auto late = pair.b.take_packets();
  pair.b = LinkSession(options_of(1, 0, 2), 0);
  pair.b.open(0);
  pair.exchange();
  told(pair.a);
  pair.a.receive(late[0], 0);
  CHECK(told(pair.a).empty());
  CHECK(pair.a.counters().stale >= 1);
}

TEST_CASE("forget() ends a session in silence here and by LinkDown at the peer") {
  Pair pair;
  pair.a.open(0);
  pair.exchange();
  told(pair.a), told(pair.b);
  pair.a.send(text_mail("unwanted"), 0);
  pair.a.take_packets();
  pair.a.forget();
  CHECK(pair.a.next_tick() == kNever);
  CHECK(told(pair.a).empty());
  CHECK(pair.a.counters().lost == 1);
  pair.b.send(text_mail("from a life that was declared over"), 0);
  pair.exchange();
  CHECK(told(pair.b) == Strings{"down 1", "up 1"});
  CHECK(told(pair.a) == Strings{"up 1"});  // and the mail of the old session was not obeyed
  pair.b.send(text_mail("register again"), 0);
  pair.exchange();
  CHECK(told(pair.a) == Strings{"register again"});
}

TEST_CASE("a full queue ends the session aloud") {
  LinkSessionOptions options = options_of(0, 1);
  options.unacked_max = 2;
  LinkSession a(options, 0);
  LinkSession b(options_of(1, 0), 0);
  a.open(0);
  auto carry = [&] {
    for (int i = 0; i < 8; ++i) {
      for (auto& p : a.take_packets()) b.receive(std::move(p), 0);
      for (auto& p : b.take_packets()) a.receive(std::move(p), 0);
    }
  };
  carry();
  told(a), told(b);
  for (int i = 0; i < 3; ++i) a.send(text_mail("x"), 0);
  CHECK(told(a) == Strings{"down 1"});
  CHECK(a.counters().lost == 3);
  a.send(text_mail("y"), 0);
  carry();
  CHECK(told(b) == Strings{"x", "x", "down 1", "up 1", "y"});
  CHECK(told(a) == Strings{"up 1"});
}

TEST_CASE("a broken path is a hint; the session goes on where it was when the path returns") {
  Pair pair;
  pair.a.open(0);
  pair.exchange();
  told(pair.a), told(pair.b);
  pair.a.disconnected("socket closed");
  CHECK(told(pair.a) == Strings{"down! 1"});
  pair.a.disconnected("socket closed");
  pair.a.send(text_mail("waits"), 0);
  CHECK(pair.a.take_packets().empty());
  CHECK(pair.a.next_tick() == LinkSessionOptions{}.give_up_us);
  pair.a.connected(kSecond);
  pair.exchange();
  CHECK(told(pair.a) == Strings{"up 1"});
  CHECK(told(pair.b) == Strings{"waits"});
}

TEST_CASE("time spent waiting for a link is taken off a deadline") {
  Pair pair;
  Mail mail = text_mail("urgent");
  mail.envelope.remaining_us = 900;
  pair.a.send(std::move(mail), 100);
  pair.now = 400;
  pair.exchange();
  auto events = pair.b.take_events();
  REQUIRE(events.size() == 2);
  CHECK(std::get<Mail>(events[1]).envelope.remaining_us == 600);
}

TEST_CASE("packets that no peer would send are counted and change nothing") {
  Pair pair;
  pair.a.open(0);
  pair.exchange();
  told(pair.a), told(pair.b);
  pair.b.send(text_mail("x"), 0);
  LinkPacket good = pair.b.take_packets().at(0);
  for (int kind = 0; kind < 5; ++kind) {
    LinkPacket bad = good;
    if (kind == 0) bad.source_rank = 7;
    if (kind == 1) bad.target_rank = 7;
    if (kind == 2) bad.source = LinkLife{};
    if (kind == 3) bad.ack = 99;
    if (kind == 4) bad.mail->envelope.link_seq = 0;
    pair.a.receive(std::move(bad), 0);
  }
  CHECK(pair.a.counters().malformed == 5);
  CHECK(told(pair.a).empty());
  pair.a.receive(good, 0);
  CHECK(told(pair.a) == Strings{"x"});
}

namespace {

// Two ranks over a network that drops, repeats, delays and so reorders; sessions are forgotten and
// processes replaced at random. Every message names the session it was sent in and its number
// there, so that the receiver can tell a lost, repeated, reordered or resurrected one.
class LossyWorld {
 public:
  explicit LossyWorld(uint64_t seed) : random_(seed) {
    for (uint32_t side : {0u, 1u}) start(side);
  }

  void run(int steps, bool faults) {
    for (int i = 0; i < steps; ++i) {
      now_ += roll(40) * kMillisecond;
      if (roll(2) == 0) say(roll(2));
      if (faults && roll(400) == 0) forget(roll(2));
      if (faults && roll(400) == 0) start(roll(2));
      for (uint32_t side : {0u, 1u}) step(side, faults);
    }
  }

  size_t received(uint32_t side) const { return received_[side]; }
  size_t sent(uint32_t side) const { return sent_[side]; }
  bool up() const { return ends_[0]->up() && ends_[1]->up(); }
  size_t unacked() const { return ends_[0]->unacked() + ends_[1]->unacked(); }
  uint64_t lost() const { return ends_[0]->counters().lost + ends_[1]->counters().lost; }
  void quiet(int steps) {
    for (int i = 0; i < steps; ++i) {
      now_ += 20 * kMillisecond;
      for (uint32_t side : {0u, 1u}) step(side, false);
    }
  }

 private:
  using Life = std::pair<LinkLife, uint64_t>;

  uint32_t roll(uint32_t n) { return static_cast<uint32_t>(random_() % n); }

  void start(uint32_t side) {
    LinkSessionOptions options = options_of(side, 1 - side, ++incarnations_[side]);
    options.reorder_max = 16;
    ends_[side].emplace(options, now_);
    ends_[side]->open(now_);
    heard_[side] = {};
  }

  void forget(uint32_t side) {
    ends_[side]->forget();
    ends_[side]->open(now_);
    heard_[side].up = false;  // without an event
  }

  void say(uint32_t side) {
    const LinkLife life = ends_[side]->life();
    if (life != numbering_[side].first) numbering_[side] = {life, 0};
    const uint64_t number = numbering_[side].second++;
    ends_[side]->send(text_mail(std::to_string(life.incarnation) + " " +
                                std::to_string(life.generation) + " " + std::to_string(number)),
                      now_);
    ++sent_[side];
  }

  void step(uint32_t side, bool faults) {
    LinkSession& end = *ends_[side];
    while (!wires_[side].empty() && wires_[side].begin()->first <= now_) {
      end.receive(std::move(wires_[side].begin()->second), now_);
      wires_[side].erase(wires_[side].begin());
    }
    if (end.next_tick() <= now_) end.tick(now_);
    for (auto& packet : end.take_packets()) {
      if (faults && roll(5) == 0) continue;
      for (int copies = faults && roll(5) == 0 ? 2 : 1; copies > 0; --copies) {
        const Micros delay =
            faults ? roll(roll(20) == 0 ? 5000 : 120) * kMillisecond : kMillisecond;
        wires_[1 - side].emplace(now_ + delay, packet);
      }
    }
    for (auto& event : end.take_events()) hear(side, event);
  }

  void hear(uint32_t side, const LinkSession::Event& event) {
    if (std::holds_alternative<LinkUp>(event)) {
      CHECK_FALSE(heard_[side].up);
      heard_[side].up = true;
    } else if (std::holds_alternative<LinkDown>(event)) {
      heard_[side].up = false;
    } else {
      CHECK(heard_[side].up);
      LinkLife life;
      uint64_t number = 0;
      REQUIRE(std::sscanf(std::get<Mail>(event).body.c_str(), "%u %u %lu", &life.incarnation,
                          &life.generation, &number) == 3);
      auto& last = heard_[side].last;
      if (life != last.first) {
        CHECK(last.first < life);
        last = {life, 0};
      }
      CHECK(number == last.second++);
      ++received_[side];
    }
  }

  struct Heard {
    bool up = false;
    Life last;  // the peer's session, and the number that comes next in it
  };

  std::mt19937_64 random_;
  Micros now_ = 0;
  uint32_t incarnations_[2] = {0, 0};
  std::optional<LinkSession> ends_[2];
  std::multimap<Micros, LinkPacket> wires_[2];  // by arrival, to this side
  Life numbering_[2];
  Heard heard_[2];
  size_t received_[2] = {0, 0};
  size_t sent_[2] = {0, 0};
};

}  // namespace

TEST_CASE("over a lossy network mail is never lost, repeated or reordered within a session") {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    LossyWorld world(seed);
    world.run(1500, true);
    world.quiet(600);  // faults stop: both sides must find each other again
    CHECK(world.up());
    CHECK(world.unacked() == 0);
    const size_t before = world.received(0) + world.received(1);
    CHECK(before > 0);
    world.run(100, false);
    world.quiet(50);
    CHECK(world.received(0) + world.received(1) > before);
  }
}
