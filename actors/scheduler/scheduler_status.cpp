// The cluster as `baton status` shows it.

#include "actors/scheduler/scheduler.h"

namespace baton {
namespace {

WorkerStatus status_of(const Worker& worker, bool alive, Micros awake_now,
                       const WeightsUpdate& weights) {
  WorkerStatus status;
  status.rank = worker.id.rank;
  status.incarnation = worker.id.incarnation;
  status.role = worker.info.role;
  status.host = worker.info.host;
  status.cores = worker.info.cores;
  status.alive = alive;
  status.capacity = worker.info.capacity;
  const Degrees degrees = degrees_of(worker.info.placement);
  status.tensor_parallel = degrees.tensor_parallel;
  status.pipeline_parallel = degrees.pipeline_parallel;
  status.block_tokens = worker.info.placement.block_tokens;
  status.kv_dtype = worker.info.placement.dtype;
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
  status.blocks_cached = worker.load.blocks_cached;
  status.weights = weights.served_by(worker.id);
  status.weights_trouble = weights.trouble(worker.id);
  return status;
}

}  // namespace

void Scheduler::on(Context& context, const Envelope& from, ClusterQuery&) {
  context.send(from.from, report(context), {{}, {}, from.correlation, kNever});
}

ClusterReply Scheduler::report(const Context& context) const {
  ClusterReply reply;
  for (const auto& [key, worker] : members_.live()) {
    reply.workers.push_back(status_of(worker, true, awake(context), weights_));
    reply.workers.back().connected = pairs_.ready(worker.id);
  }
  for (const auto& [key, worker] : members_.dead()) {
    reply.workers.push_back(status_of(worker, false, awake(context), weights_));
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
                    {"plans_computed", members_.plan_counters().computed},
                    {"plans_cached", members_.plan_counters().hits},
                    {"pairs_connected", pairs_.counters().connected},
                    {"pairs_failed", pairs_.counters().failed},
                    {"pauses", c.pauses},
                    {"cached_tokens", c.cached_tokens},
                    {"local_prefills", c.local_prefills},
                    {"weights_updates", weights_.counters().updates},
                    {"weights_committed", weights_.counters().committed},
                    {"weights_failed", weights_.counters().failed},
                    {"weights_refused", weights_.counters().refused},
                    {"weights_brought_up", weights_.counters().brought_up},
                    {"weights_dropped", weights_.counters().dropped},
                    {"weight_plans_reused", weights_.counters().plans_reused}};
  reply.weights_version = weights_.current();
  reply.update = weights_.report();
  reply.kv_layer_groups = static_cast<uint32_t>(limits_.kv_layer_groups);
  reply.kv_digests = limits_.kv_digests;
  return reply;
}

}  // namespace baton
