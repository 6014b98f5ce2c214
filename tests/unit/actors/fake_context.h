#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/actor/actor.h"
#include "runtime/actor/context.h"
#include "runtime/actor/wire.h"

// Last: its CHECK replaces the one of runtime/base/check.h.
#include <doctest/doctest.h>

namespace baton::test {

// One message that an actor sent, decoded.
template <Message M>
struct Sent {
  Envelope envelope;
  M message;
};

// A Context for one actor under test: keeps what the actor sends in `sent`, in order, and moves its
// clock only when told. Used by the test's thread alone.
class FakeContext : public Context {
 public:
  explicit FakeContext(ActorId self, uint64_t seed = 1) : self_(self), random_state_(seed) {}

  // ---- what the actor sees
  ActorId self() const override { return self_; }
  Micros now() const override { return now_; }
  uint64_t random() override {  // splitmix64
    uint64_t z = (random_state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  TimerId set_timer(Micros delay, uint32_t purpose, uint64_t key = 0) override {
    const TimerId id{++last_timer_};
    timers_[id] = Pending{now_ + std::max<Micros>(delay, 0), purpose, key};
    return id;
  }
  void cancel_timer(TimerId id) override { timers_.erase(id); }
  void post(Mail mail) override { sent.push_back(std::move(mail)); }

  // ---- what the test does
  std::vector<Mail> sent;

  size_t timers_pending() const { return timers_.size(); }

  // Delivers one message to `actor` as if `from` had sent it. True if the actor took it.
  template <Message M>
  bool deliver(Actor& actor, ActorId from, const M& message, const Routing& routing = {}) {
    Mail mail;
    mail.envelope.kind = M::kind;
    mail.envelope.from = from;
    mail.envelope.to = self_;
    mail.envelope.request = routing.request;
    mail.envelope.epoch = routing.epoch;
    mail.envelope.correlation = routing.correlation;
    mail.envelope.remaining_us = routing.remaining_us;
    mail.body = encode_body(message);
    return actor.receive(*this, mail);
  }

  // Moves the clock on by `duration` and fires every timer that falls due, each at its own time.
  void advance(Actor& actor, Micros duration) {
    const Micros until = now_ + duration;
    while (fire_next(actor, until)) {
    }
    now_ = until;
  }
  // Moves the clock on without firing anything: the process was stopped for so long. Timers that
  // fell due meanwhile fire with the next advance().
  void stall(Micros duration) { now_ += duration; }

  // The first message of kind M that was sent (to `to`, if given) and not taken yet; removed.
  template <Message M>
  std::optional<Sent<M>> take(std::optional<ActorId> to = {}) {
    for (auto mail = sent.begin(); mail != sent.end(); ++mail) {
      if (mail->envelope.kind != M::kind || (to && !same_actor(mail->envelope.to, *to))) continue;
      Result<M> message = decode_body<M>(mail->body, limits_);
      REQUIRE_MESSAGE(message.ok(), "a message that was sent does not decode");
      Sent<M> result{mail->envelope, std::move(*message)};
      sent.erase(mail);
      return result;
    }
    return std::nullopt;
  }
  // The same, failing the test when there is none.
  template <Message M>
  Sent<M> expect(std::optional<ActorId> to = {}) {
    std::optional<Sent<M>> found = take<M>(to);
    REQUIRE_MESSAGE(found.has_value(), "not sent: ", msg_kind_name(M::kind));
    return std::move(*found);
  }
  template <Message M>
  size_t count(std::optional<ActorId> to = {}) const {
    return static_cast<size_t>(std::count_if(sent.begin(), sent.end(), [&](const Mail& mail) {
      return mail.envelope.kind == M::kind && (!to || same_actor(mail.envelope.to, *to));
    }));
  }
  void forget_sent() { sent.clear(); }

 private:
  struct Pending {
    Micros due = 0;
    uint32_t purpose = 0;
    uint64_t key = 0;
  };

  static bool same_actor(ActorId sent_to, ActorId wanted) {
    return sent_to == wanted || (sent_to.rank == wanted.rank && sent_to.slot == wanted.slot &&
                                 wanted.incarnation == kAnyIncarnation);
  }
  bool fire_next(Actor& actor, Micros until) {
    auto next = timers_.end();
    for (auto timer = timers_.begin(); timer != timers_.end(); ++timer) {
      if (timer->second.due <= until && (next == timers_.end() || earlier(*timer, *next))) {
        next = timer;
      }
    }
    if (next == timers_.end()) return false;
    now_ = std::max(now_, next->second.due);
    const Timer message{next->first, next->second.purpose, next->second.key};
    timers_.erase(next);
    deliver(actor, self_, message);
    return true;
  }
  template <class Entry>
  static bool earlier(const Entry& a, const Entry& b) {
    return a.second.due < b.second.due;  // equal: the one that was set first
  }

  ActorId self_;
  Micros now_ = kSecond;
  uint64_t random_state_;
  uint64_t last_timer_ = 0;
  std::map<TimerId, Pending> timers_;
  Limits limits_;
};

}  // namespace baton::test
