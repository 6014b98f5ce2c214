#include "runtime/actor/supervisor.h"

#include <doctest/doctest.h>

#include "runtime/actor/control_link.h"

namespace baton {
namespace {

struct Poke {
  static constexpr MsgKind kind = MsgKind::cluster_query;
  uint32_t value = 0;
  BATON_FIELDS(value)
};

struct Log {
  std::vector<std::string> lines;
};

// Writes down what it hears; value 13 breaks it, 14 sets a timer, 15 sets and cancels one.
class Scribe final : public ActorOf<Scribe, MessageList<Poke, Timer, ActorDown, Undeliverable>> {
 public:
  explicit Scribe(Log& log, bool fails_to_start = false)
      : log_(log), fails_to_start_(fails_to_start) {}
  void start(Context& context) override {
    if (fails_to_start_) throw ActorBroken("no engine");
    log_.lines.push_back("start " + std::to_string(context.self().incarnation));
  }
  void on(Context& context, const Envelope&, Poke& poke) {
    log_.lines.push_back("poke " + std::to_string(poke.value));
    if (poke.value == 13) throw ActorBroken("thirteen");
    if (poke.value == 14) last_ = context.set_timer(100, 7, 8);
    if (poke.value == 15) context.cancel_timer(last_);
  }
  void on(Context&, const Envelope&, Timer& timer) {
    log_.lines.push_back("timer " + std::to_string(timer.purpose) + " " +
                         std::to_string(timer.key));
  }
  void on(Context&, const Envelope&, ActorDown& down) {
    log_.lines.push_back("down " + std::to_string(down.actor.slot) + "." +
                         std::to_string(down.actor.incarnation) + " " + down.reason);
  }
  void on(Context&, const Envelope& from, Undeliverable& back) {
    log_.lines.push_back("undeliverable " + std::to_string(back.target.slot) + " request " +
                         std::to_string(from.request.value) + (back.full ? " full" : ""));
  }

 private:
  Log& log_;
  const bool fails_to_start_;
  TimerId last_;
};

// One rank with a clock that the test turns.
struct Rank {
  Micros now = 0;
  Micros wake = kNever;
  std::vector<std::string> escalated;
  Supervisor supervisor{
      5,
      {[this] { return now; }, [] { return uint64_t{4}; },
       [this](Mail mail) { supervisor.push(std::move(mail)); }, [this](Micros at) { wake = at; },
       [this](const ActorId&, const std::string& why) { escalated.push_back(why); }},
      Limits{}};

  void drain() {
    for (bool busy = true; busy;) {
      busy = false;
      for (uint32_t slot : supervisor.slots()) {
        std::vector<Mail> mails;
        supervisor.take(slot, mails, 32);
        for (const Mail& mail : mails) supervisor.dispatch(mail);
        busy |= !mails.empty();
      }
    }
  }
  void poke(uint32_t slot, uint32_t incarnation, uint32_t value) {
    Mail mail;
    mail.envelope.kind = Poke::kind;
    mail.envelope.from = {5, 1, 0};
    mail.envelope.to = {5, slot, incarnation};
    mail.envelope.request = {77};
    mail.body = encode_body(Poke{value});
    if (supervisor.push(Mail(mail)).pushed == Pushed::closed) supervisor.dispatch(mail);
    drain();
  }
};

TEST_CASE(
    "S10: an actor that throws is rebuilt under the next incarnation, and its neighbours hear it") {
  Rank rank;
  Log one, two;
  rank.supervisor.add(1, 10, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.add(2, 10, [&] { return std::make_unique<Scribe>(two); });
  rank.supervisor.start();
  rank.poke(2, 10, 13);
  CHECK(two.lines == std::vector<std::string>{"start 10", "poke 13", "start 11"});
  CHECK(one.lines == std::vector<std::string>{"start 10", "down 2.10 thirteen"});
  CHECK(rank.supervisor.incarnation(2) == 11);
}

TEST_CASE("mail for an earlier life is dropped, counted and sent back to one who waits") {
  Rank rank;
  Log one, two;
  rank.supervisor.add(1, 10, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.add(2, 10, [&] { return std::make_unique<Scribe>(two); });
  rank.supervisor.start();
  rank.poke(2, 9, 1);
  CHECK(two.lines == std::vector<std::string>{"start 10"});
  CHECK(one.lines.back() == "undeliverable 2 request 77");
  CHECK(rank.supervisor.counts().stale == 1);
  rank.poke(2, 12, 1);
  CHECK(rank.supervisor.counts().undeliverable == 1);
  rank.poke(9, 1, 1);
  CHECK(one.lines.back() == "undeliverable 9 request 77");
  rank.poke(2, kAnyIncarnation, 3);
  CHECK(two.lines.back() == "poke 3");
}

TEST_CASE("the fourth failure within a minute escalates and leaves the actor dead") {
  Rank rank;
  Log one;
  rank.supervisor.add(1, 1, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.start();
  for (int i = 0; i < 3; ++i) rank.poke(1, kAnyIncarnation, 13);
  CHECK(rank.escalated.empty());
  CHECK(rank.supervisor.actor(1) != nullptr);
  rank.poke(1, kAnyIncarnation, 13);
  CHECK(rank.escalated == std::vector<std::string>{"thirteen"});
  CHECK(rank.supervisor.actor(1) == nullptr);
}

TEST_CASE("failures that lie further apart than the window do not add up") {
  Rank rank;
  Log one;
  rank.supervisor.add(1, 1, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.start();
  for (int i = 0; i < 8; ++i) {
    rank.poke(1, kAnyIncarnation, 13);
    rank.now += 30 * kSecond;
  }
  CHECK(rank.escalated.empty());
}

TEST_CASE("an actor that cannot start uses up its restarts and escalates") {
  Rank rank;
  Log one;
  rank.supervisor.add(1, 1, [&] { return std::make_unique<Scribe>(one, true); });
  rank.supervisor.start();
  CHECK(rank.escalated == std::vector<std::string>{"no engine"});
}

TEST_CASE("a timer fires once at its time, and never after it was cancelled") {
  Rank rank;
  Log one;
  rank.supervisor.add(1, 1, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.start();
  rank.poke(1, 1, 14);
  CHECK(rank.wake == 100);
  rank.now = 99;
  CHECK(rank.supervisor.expire_timers().empty());
  rank.now = 100;
  CHECK(rank.supervisor.expire_timers() == std::vector<uint32_t>{1});
  rank.drain();
  CHECK(one.lines.back() == "timer 7 8");
  rank.poke(1, 1, 14);
  rank.now = 200;
  rank.poke(1, 1, 15);
  CHECK(rank.supervisor.expire_timers().empty());
}

TEST_CASE("a timer cancelled between firing and its mail being handled is not delivered") {
  Rank rank;
  Log one;
  rank.supervisor.add(1, 1, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.start();
  rank.poke(1, 1, 14);
  rank.now = 100;
  rank.supervisor.expire_timers();
  Mail cancel;
  cancel.envelope.kind = Poke::kind;
  cancel.envelope.to = {5, 1, 1};
  cancel.body = encode_body(Poke{15});
  rank.supervisor.dispatch(cancel);
  rank.drain();
  CHECK(one.lines.back() == "poke 15");
}

TEST_CASE("timers of a life end with it") {
  Rank rank;
  Log one;
  rank.supervisor.add(1, 1, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.start();
  rank.poke(1, 1, 14);
  rank.supervisor.fail(1, "test");
  rank.now = 1000;
  CHECK(rank.supervisor.expire_timers().empty());
}

TEST_CASE("a body that does not decode is counted and changes nothing") {
  Rank rank;
  Log one;
  rank.supervisor.add(1, 1, [&] { return std::make_unique<Scribe>(one); });
  rank.supervisor.start();
  Mail bad;
  bad.envelope.kind = Poke::kind;
  bad.envelope.to = {5, 1, 1};
  bad.body = "\xc1";
  rank.supervisor.dispatch(bad);
  CHECK(rank.supervisor.counts().undecodable == 1);
  CHECK(one.lines == std::vector<std::string>{"start 1"});
}

}  // namespace
}  // namespace baton
