#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/protocol/worker.h"
#include "actors/scheduler/worker_key.h"
#include "runtime/actor/actor_id.h"
#include "runtime/base/limits.h"
#include "runtime/layout/plan.h"

namespace baton {

// One life of one prefill or decode actor. What it holds by the request ledger is kept here too,
// so that its end costs as much as it held.
struct Worker {
  ActorId id;
  Register info;
  Beat load;  // as of the last beat

  // ---- liveness; instants are those of the scheduler's awake time
  Micros heard_at = 0;
  Micros probe_until = kNever;  // its link broke: dead then, unless it is heard of
  uint64_t unechoed_seq = 0;    // the first BeatAck that it has not confirmed ...
  Micros unechoed_at = kNever;  // ... and when that was sent

  // ---- circuit breaker: after a failure one request at a time, after more of them a pause
  uint32_t failures = 0;  // in a row
  Micros closed_until = 0;

  // ---- its part in requests
  std::set<RequestId> requests;
  uint32_t arriving = 0;         // RESERVING or PREFILL here; for decode TRANSFER too
  uint64_t positions_ahead = 0;  // of those, for prefill
  bool drained = false;

  // Positions that one sequence can have here: the context, and what the pool can hold.
  uint64_t positions_max() const;
};

struct MembershipCounters {
  uint64_t joined = 0;
  uint64_t refused = 0;
  uint64_t deaths = 0;
};

// Who takes part: the lives of all workers, from Register to death. Decides who may join, who is
// dead, and which mail comes from a life that has ended. Pure; owned by the scheduler, its thread
// only. `now` is the scheduler's awake time: its own pauses do not count, so that nobody is
// declared dead because the scheduler slept.
class Membership {
 public:
  // `model_hash` 0: the first worker to join says which model is served.
  Membership(const Limits& limits, uint64_t model_hash);

  enum class Join { joined, again, refused };
  struct JoinResult {
    Join outcome = Join::refused;
    Refusal refusal;
    Worker* worker = nullptr;
  };
  // A Register. An earlier life at the same place must have been buried before.
  JoinResult join(ActorId from, const Register& info, Micros now);

  // The worker that sent this, if that life is alive; it has been heard of then.
  Worker* hear(ActorId from, Micros now);
  Worker* find(ActorId life);
  Worker* at(WorkerKey key);
  // A life that has been declared dead, or is older than one that was.
  bool fenced(ActorId life) const;

  void beat(Worker& worker, const Beat& beat);
  void acknowledged(Worker& worker, uint64_t seq, Micros now);
  // A link to the rank broke and its process is probably gone.
  void suspect(uint32_t rank, Micros now);
  // There is a link to the rank again: its process lives.
  void trust(uint32_t rank);

  struct Dead {
    ActorId id;
    std::string reason;
  };
  std::vector<Dead> overdue(Micros now) const;
  // The life ends; what it held is returned. From now on it is fenced.
  Worker bury(ActorId life);
  // The scheduler was stopped: ages start again, none of them in the future.
  void restart_ages(Micros now);

  void note_failure(Worker& worker, Micros now);
  void note_success(Worker& worker);
  bool open(const Worker& worker, Micros now) const;

  const std::map<WorkerKey, Worker>& live() const { return live_; }
  std::map<WorkerKey, Worker>& live() { return live_; }
  // The last dead life of each place that has none now, for the status.
  const std::map<WorkerKey, Worker>& dead() const { return dead_; }
  // The highest incarnation of each place that has died.
  const std::map<WorkerKey, uint32_t>& fences() const { return fenced_; }
  const MembershipCounters& counters() const { return counters_; }

  // How KV moves between two workers. They have joined, so there is a plan.
  const Plan& plan(const Worker& source, const Worker& target);
  const PlanCacheCounters& plan_counters() const { return plans_.counters(); }

 private:
  std::optional<Refusal> find_fault(const Register& info);
  std::optional<Refusal> find_plan_fault(const Register& info, const Placement& placement);

  const Limits limits_;
  const uint64_t model_hash_;
  std::map<WorkerKey, Worker> live_;
  std::map<WorkerKey, Worker> dead_;
  std::map<WorkerKey, uint32_t> fenced_;  // highest dead incarnation
  PlanCache plans_;
  MembershipCounters counters_;
};

}  // namespace baton
