#include "runtime/sim/sim_host.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/sim/world.h"

namespace baton {
namespace {

constexpr size_t kDrainMax = 32;
constexpr size_t kWorkMax = 1024;
constexpr Micros kWorkUsMax = 2 * kMillisecond;

}  // namespace

// The worker pool on virtual time: work takes a while, and pieces of it overtake each other.
class SimHost::VirtualWorkers final : public Workers {
 public:
  explicit VirtualWorkers(SimHost& host) : host_(host) {}
  bool run(std::function<Mail()> work) override {
    if (under_way_ >= kWorkMax) return false;
    ++under_way_;
    host_.later(host_.world_.random().between(10, kWorkUsMax), [this, work = std::move(work)] {
      --under_way_;
      host_.post(work());
    });
    return true;
  }

 private:
  SimHost& host_;
  size_t under_way_ = 0;
};

SimHost::SimHost(World& world, uint32_t rank, uint32_t life)
    : world_(world),
      rank_(rank),
      life_(life),
      workers_(std::make_unique<VirtualWorkers>(*this)),
      supervisor_(rank,
                  {[this] { return world_.now(); }, [this] { return world_.random().next(); },
                   [this](Mail mail) { post(std::move(mail)); }, [this](Micros at) { wake_at(at); },
                   [this](const ActorId& actor, const std::string& reason) {
                     world_.note_escalation(actor, reason);
                   }},
                  world.limits()) {}

SimHost::~SimHost() = default;

void SimHost::add_actor(uint32_t slot, ActorFactory factory) {
  supervisor_.add(slot, life_ * kIncarnationsPerLife + 1, std::move(factory));
}

Workers& SimHost::workers() {
  return *workers_;
}

Pushed SimHost::post(Mail mail) {
  const Envelope& envelope = mail.envelope;
  if (!world_.admit(*this, mail)) return Pushed::accepted;  // lost on purpose
  if (envelope.to.rank == kClientRank && client_sink_) {
    client_sink_(std::move(mail));
    return Pushed::accepted;
  }
  if (envelope.to.rank != rank_) {
    if (link_ && envelope.to.rank != kClientRank) {
      link_->send(std::move(mail));
    } else {
      supervisor_.bounce(envelope, false);
    }
    return Pushed::accepted;
  }
  const uint32_t slot = envelope.to.slot;
  const Mailbox::Outcome outcome = supervisor_.push(std::move(mail));
  if (outcome.wake) schedule_drain(slot);
  if (outcome.pushed != Pushed::accepted && envelope.from.rank != kClientRank) {
    supervisor_.bounce(envelope, outcome.pushed == Pushed::full);
  }
  return outcome.pushed;
}

void SimHost::post_to_all(MsgKind kind, const std::string& body) {
  for (uint32_t slot : supervisor_.slots()) {
    Mail mail;
    mail.envelope.kind = kind;
    mail.envelope.from = {rank_, 0, 0};
    mail.envelope.to = {rank_, slot, kAnyIncarnation};
    mail.body = body;
    post(std::move(mail));
  }
}

void SimHost::later(Micros delay, std::function<void()> task) {
  world_.schedule(*this, delay, std::move(task));
}

void SimHost::schedule_drain(uint32_t slot) {
  later(world_.random().between(1, handler_us_max_), [this, slot] { drain(slot); });
}

void SimHost::drain(uint32_t slot) {
  // The batch is a member: mail in it is dropped with the process when a handler's message makes
  // the process crash.
  supervisor_.take(slot, batch_, kDrainMax);
  if (batch_.empty()) return;
  const std::vector<Mail> batch = std::move(batch_);
  batch_.clear();
  for (const Mail& mail : batch) {
    if (!world_.deliver(*this, mail)) return;
  }
  schedule_drain(slot);
}

void SimHost::wake_at(Micros at) {
  if (at == kNever) return;
  later(std::max<Micros>(at - world_.now(), 0), [this] {
    for (uint32_t slot : supervisor_.expire_timers()) schedule_drain(slot);
  });
}

}  // namespace baton
