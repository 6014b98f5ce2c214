// The cluster as `baton status` shows it.

#include "actors/scheduler/scheduler.h"

namespace baton {
namespace {

WorkerStatus status_of(const Worker& worker, bool alive, Micros awake_now) {
  WorkerStatus status;
  status.rank = worker.id.rank;
  status.incarnation = worker.id.incarnation;
  status.role = worker.info.role;
  status.host = worker.info.host;
  status.cores = worker.info.cores;
  status.alive = alive;
  status.capacity = worker.info.capacity;
  status.model_hash = worker.info.model_hash;
  status.steps = worker.load.step;
  status.beat_age_us = awake_now > worker.heard_at ? awake_now - worker.heard_at : 0;
  status.counters = worker.load.counters;
  if (!alive) return status;
  status.slots_free = worker.load.slots_free;
  status.blocks_free = worker.load.blocks_free;
  status.blocks_quarantined = worker.load.blocks_quarantined;
  status.queued = worker.load.queued;
  status.running = worker.load.running;
  return status;
}

}  // namespace

void Scheduler::on(Context& context, const Envelope& from, ClusterQuery&) {
  context.send(from.from, report(context), {{}, {}, from.correlation, kNever});
}

ClusterReply Scheduler::report(const Context& context) const {
  ClusterReply reply;
  for (const auto& [key, worker] : members_.live()) {
    reply.workers.push_back(status_of(worker, true, awake(context)));
  }
  for (const auto& [key, worker] : members_.dead()) {
    reply.workers.push_back(status_of(worker, false, awake(context)));
  }
  for (size_t state = 0; state < kRequestStates; ++state) {
    const auto name = static_cast<RequestState>(state);
    if (is_terminal(name)) continue;
    reply.requests.push_back({request_state_name(name), requests_.by_state()[state]});
  }
  const auto slots = leases_.slots_by_state();
  for (size_t state = 0; state < slots.size(); ++state) {
    reply.leases.push_back({lease_state_name(static_cast<LeaseState>(state)), slots[state]});
  }
  const SchedulerCounters& c = counters_;
  reply.counters = {{"admitted", c.admitted},
                    {"finished", c.finished},
                    {"cancelled", c.cancelled},
                    {"failed", c.failed},
                    {"refused", c.refused},
                    {"migrations", c.migrations},
                    {"preemptions", c.preemptions},
                    {"poisoned", c.poisoned},
                    {"reserve_refusals", c.reserve_refusals},
                    {"fenced_messages", c.fenced_messages},
                    {"dropped_messages", c.dropped_messages},
                    {"slots_credited_late", c.slots_credited_late},
                    {"slots_reclaimed", leases_.reclaimed()},
                    {"joined", members_.counters().joined},
                    {"joins_refused", members_.counters().refused},
                    {"deaths", members_.counters().deaths},
                    {"pauses", c.pauses}};
  return reply;
}

}  // namespace baton
