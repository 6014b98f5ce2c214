#include "launch/serve/host.h"

#include <algorithm>

#include "actors/protocol/worker.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

enum class HostTimer : uint32_t { ask = 1, leave = 2, orphan = 3, drain = 4 };

constexpr Micros kAskEvery = 50 * kMillisecond;
constexpr Micros kFlush = 200 * kMillisecond;  // for the last messages to go out
constexpr Micros kOrphanAfter = 4 * kSecond;   // without the control rank

void arm(Context& context, HostTimer timer, Micros delay) {
  context.set_timer(delay, static_cast<uint32_t>(timer));
}

bool all_joined(const Topology& topology, const ClusterReply& reply) {
  const auto alive = [&](Role role) {
    return std::count_if(reply.workers.begin(), reply.workers.end(),
                         [role](const WorkerStatus& worker) {
                           return worker.alive && worker.connected && worker.role == role;
                         });
  };
  const auto joined = [&](Role role) {
    return static_cast<size_t>(alive(role)) >= topology.count(role);
  };
  return joined(Role::prefill) && joined(Role::decode);
}

}  // namespace

void Host::start(Context& context) {
  if (control()) ask(context);
}

void Host::ask(Context& context) {
  context.send(options_.scheduler, ClusterQuery{});
  arm(context, HostTimer::ask, kAskEvery);
}

void Host::on(Context&, const Envelope&, ClusterReply& reply) {
  if (!ready_ && all_joined(options_.topology, reply)) {
    ready_ = true;
    options_.ready(reply);
  }
}

void Host::on(Context& context, const Envelope&, Drained&) {
  stop_all(context);
}

void Host::on(Context& context, const Envelope&, StopAsked& message) {
  if (!control()) {
    // The launcher signals every rank at once. The control rank finishes what runs and then says
    // Stop; without it, the orphan timer ends this rank.
    return;
  }
  if (draining_ || options_.limits.drain_us == 0) return stop_all(context);
  log_info("signal " + std::to_string(message.signal) +
           ": taking no new requests, finishing those that run; a second signal ends at once");
  draining_ = true;
  context.send(options_.scheduler, Drain{});
  arm(context, HostTimer::drain, options_.limits.drain_us);
}

void Host::stop_all(Context& context) {
  for (uint32_t rank = 1; rank < options_.topology.ranks; ++rank) {
    context.send(ActorId{rank, kHostSlot, kAnyIncarnation}, Stop{});
  }
  arm(context, HostTimer::leave, kFlush);
}

void Host::on(Context&, const Envelope&, Stop&) {
  options_.leave(0);
}

void Host::on(Context& context, const Envelope&, LinkUp& message) {
  if (message.rank != 0 || !orphan_armed_) return;
  context.cancel_timer(orphan_timer_);
  orphan_armed_ = false;
}

void Host::on(Context& context, const Envelope&, LinkDown& message) {
  if (control() || message.rank != 0 || orphan_armed_) return;
  orphan_timer_ = context.set_timer(kOrphanAfter, static_cast<uint32_t>(HostTimer::orphan));
  orphan_armed_ = true;
}

void Host::on(Context&, const Envelope&, ActorDown& message) {
  log_warning("actor " + std::to_string(message.actor.slot) + " started over: " + message.reason);
}

void Host::on(Context& context, const Envelope&, Timer& timer) {
  switch (static_cast<HostTimer>(timer.purpose)) {
    case HostTimer::ask:
      if (!ready_) ask(context);
      return;
    case HostTimer::drain:
      log_warning("the drain time is over; ending with requests unfinished");
      return stop_all(context);
    case HostTimer::leave: return options_.leave(0);
    case HostTimer::orphan:
      log_error("the control rank has been gone for 4 s; leaving");
      return options_.leave(69);
  }
}

}  // namespace baton
