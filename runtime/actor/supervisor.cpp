#include "runtime/actor/supervisor.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "runtime/actor/control_link.h"
#include "runtime/actor/delivery.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

std::string actor_name(const ActorId& id) {
  return "actor " + std::to_string(id.rank) + "/" + std::to_string(id.slot) + "." +
         std::to_string(id.incarnation);
}

}  // namespace

// The Context of one life of one actor. Its timers end with it.
class Supervisor::Life final : public Context {
 public:
  Life(Supervisor& supervisor, ActorId self) : supervisor_(supervisor), self_(self) {}
  ~Life() override { supervisor_.timers_.cancel_all(self_); }

  ActorId self() const override { return self_; }
  Micros now() const override { return supervisor_.hooks_.now(); }
  uint64_t random() override { return supervisor_.hooks_.random(); }
  TimerId set_timer(Micros delay, uint32_t purpose, uint64_t key) override {
    return supervisor_.set_timer(self_, delay, purpose, key);
  }
  void cancel_timer(TimerId id) override { supervisor_.timers_.cancel(id); }
  void post(Mail mail) override { supervisor_.hooks_.post(std::move(mail)); }

 private:
  Supervisor& supervisor_;
  const ActorId self_;
};

Supervisor::Supervisor(uint32_t rank, SupervisorHooks hooks, const Limits& limits)
    : rank_(rank), hooks_(std::move(hooks)), limits_(limits) {}

Supervisor::~Supervisor() {
  for (auto& [number, slot] : slots_) {
    slot.actor.reset();
    slot.life.reset();
  }
}

void Supervisor::add(uint32_t slot, uint32_t incarnation, ActorFactory factory) {
  CHECK_MSG(incarnation != kAnyIncarnation, "incarnation 0 addresses any life");
  CHECK_MSG(slots_.find(slot) == slots_.end(), "two actors in one slot");
  Slot& made = slots_[slot];
  made.factory = std::move(factory);
  made.incarnation = incarnation;
  made.mailbox = std::make_unique<Mailbox>(limits_);
}

void Supervisor::start() {
  for (auto& [number, slot] : slots_) build(number, slot);
}

// A factory or a start() that throws counts like any other failure of the actor.
void Supervisor::build(uint32_t number, Slot& slot) {
  while (!slot.given_up) {
    const ActorId self{rank_, number, slot.incarnation};
    std::string reason;
    try {
      slot.life = std::make_unique<Life>(*this, self);
      slot.actor = slot.factory();
      slot.actor->start(*slot.life);
      return;
    } catch (const std::exception& error) {
      reason = error.what();
    }
    slot.actor.reset();
    slot.life.reset();
    log_error(actor_name(self) + " did not start: " + reason);
    ++slot.incarnation;
    if (!restart_allowed(slot)) {
      slot.given_up = true;
      hooks_.escalate(self, reason);
    }
  }
}

bool Supervisor::restart_allowed(Slot& slot) {
  const Micros now = hooks_.now();
  std::erase_if(slot.restarts, [&](Micros at) { return now - at >= kRestartWindow; });
  if (slot.restarts.size() >= kRestartsMax) return false;
  slot.restarts.push_back(now);
  return true;
}

void Supervisor::restart(uint32_t number, Slot& slot, const std::string& reason) {
  const ActorId old{rank_, number, slot.incarnation};
  slot.actor.reset();
  slot.life.reset();
  ++slot.incarnation;
  ++counts_.restarts;
  announce_down(old, reason);
  if (!restart_allowed(slot)) {
    slot.given_up = true;
    log_error(actor_name(old) + " failed too often, giving up: " + reason);
    hooks_.escalate(old, reason);
    return;
  }
  log_warning(actor_name(old) + " starts over: " + reason);
  build(number, slot);
}

void Supervisor::announce_down(const ActorId& actor, const std::string& reason) {
  for (const auto& [number, slot] : slots_) {
    if (number == actor.slot || !slot.actor) continue;
    Mail mail;
    mail.envelope.kind = ActorDown::kind;
    mail.envelope.from = actor;
    mail.envelope.to = {rank_, number, slot.incarnation};
    mail.body = encode_body(ActorDown{actor, reason});
    hooks_.post(std::move(mail));
  }
}

Mailbox::Outcome Supervisor::push(Mail&& mail) {
  const auto found = slots_.find(mail.envelope.to.slot);
  if (found == slots_.end()) return {Pushed::closed, false};
  return found->second.mailbox->push(std::move(mail));
}

void Supervisor::take(uint32_t slot, std::vector<Mail>& out, size_t max) {
  slots_.at(slot).mailbox->take(out, max);
}

void Supervisor::dispatch(const Mail& mail) {
  const ActorId& to = mail.envelope.to;
  const auto found = slots_.find(to.slot);
  if (found == slots_.end() || !found->second.actor) {
    ++counts_.undeliverable;
    return bounce(mail.envelope, false);
  }
  Slot& slot = found->second;
  if (to.incarnation != kAnyIncarnation && to.incarnation != slot.incarnation) {
    ++(to.incarnation < slot.incarnation ? counts_.stale : counts_.undeliverable);
    return bounce(mail.envelope, false);
  }
  if (mail.envelope.kind == MsgKind::timer && !timers_.take({mail.envelope.correlation})) return;

  std::string reason;
  try {
    if (slot.actor->receive(*slot.life, mail)) {
      ++counts_.handled;
      return;
    }
    ++counts_.undecodable;
    log_warning(actor_name({rank_, to.slot, slot.incarnation}) + " does not accept " +
                msg_kind_name(mail.envelope.kind) + " from " + actor_name(mail.envelope.from));
    return;
  } catch (const std::exception& error) {
    reason = error.what();
  }
  restart(to.slot, slot, reason);
}

void Supervisor::bounce(const Envelope& came, bool full) {
  if (!delivery_of(came.kind).bounces || came.from.slot == 0) return;
  Mail back;
  back.envelope.kind = Undeliverable::kind;
  back.envelope.from = {rank_, came.to.slot, came.to.incarnation};
  back.envelope.to = came.from;
  back.envelope.request = came.request;
  back.envelope.epoch = came.epoch;
  back.envelope.correlation = came.correlation;
  back.body = encode_body(Undeliverable{came.to, static_cast<uint16_t>(came.kind), full});
  hooks_.post(std::move(back));
}

TimerId Supervisor::set_timer(const ActorId& owner, Micros delay, uint32_t purpose, uint64_t key) {
  const std::optional<Micros> earliest = timers_.next_due();
  const Micros now = hooks_.now();
  const Micros wait = std::max<Micros>(delay, 0);
  const Micros due = wait > kNever - now ? kNever : now + wait;
  const TimerId id = timers_.add({owner, due, purpose, key, false});
  if (!earliest || due < *earliest) hooks_.wake_at(due);
  return id;
}

std::vector<uint32_t> Supervisor::expire_timers() {
  std::vector<uint32_t> woken;
  for (Mail& mail : timers_.expire(hooks_.now())) {
    const uint32_t slot = mail.envelope.to.slot;
    if (push(std::move(mail)).wake) woken.push_back(slot);
  }
  if (const auto due = timers_.next_due()) hooks_.wake_at(*due);
  return woken;
}

void Supervisor::fail(uint32_t slot, const std::string& reason) {
  Slot& failed = slots_.at(slot);
  if (failed.actor) restart(slot, failed, reason);
}

void Supervisor::close() {
  for (auto& [number, slot] : slots_) slot.mailbox->close();
}

std::vector<uint32_t> Supervisor::slots() const {
  std::vector<uint32_t> numbers;
  for (const auto& [number, slot] : slots_) numbers.push_back(number);
  return numbers;
}

Actor* Supervisor::actor(uint32_t slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? nullptr : found->second.actor.get();
}

uint32_t Supervisor::incarnation(uint32_t slot) const {
  return slots_.at(slot).incarnation;
}

}  // namespace baton
