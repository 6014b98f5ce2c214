#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/common.h"
#include "runtime/actor/weights.h"

// Replacing the weights of a running cluster: what a client asks of its gateway and that of the
// scheduler, and what the scheduler and the workers say to each other.

namespace baton {

// What becomes of requests that run when new weights are committed.
enum class WeightsPolicy : uint8_t {
  finish = 0,  // they run to their end on the old weights, which stay until then
  resume = 1,  // they go on with the new ones, their KV recomputed
  abort = 2,   // they end
};
constexpr bool enum_valid(WeightsPolicy policy) {
  return policy <= WeightsPolicy::abort;
}
inline const char* policy_name(WeightsPolicy policy) {
  switch (policy) {
    case WeightsPolicy::finish: return "finish";
    case WeightsPolicy::resume: return "continue";
    case WeightsPolicy::abort: return "abort";
  }
  return "unknown";
}

// Client -> gateway -> scheduler: serve these weights from now on. Answered by UpdateReports, the
// last of which says so. Needs no session; taken on loopback endpoints only, unless the server was
// told otherwise.
struct UpdateWeights {
  static constexpr MsgKind kind = MsgKind::update_weights;
  std::string token;     // the client's name for this ask: asking again under it asks the same
  WeightsSource source;  // an absolute path that every worker's host has
  uint64_t version = 0;  // greater than any committed before; 0: the next one
  WeightsPolicy policy = WeightsPolicy::finish;
  bool dry_run = false;       // prepare on every worker, then let go of it
  bool wait_retired = false;  // the last report comes when the old weights are gone, not before
  int64_t timeout_ms = 0;     // for preparing; 0: the server's limit
  BATON_FIELDS(token, source, version, policy, dry_run, wait_retired, timeout_ms)
};

enum class UpdatePhase : uint8_t {
  idle = 0,        // no update runs
  preparing = 1,   // workers read, check and pack
  committing = 2,  // decided: new requests use the new weights; workers confirm
  retiring = 3,    // requests still run on the old weights, or workers still hold them
  failed = 4,      // nothing has changed
};
constexpr bool enum_valid(UpdatePhase phase) {
  return phase <= UpdatePhase::failed;
}
inline const char* phase_name(UpdatePhase phase) {
  switch (phase) {
    case UpdatePhase::idle: return "idle";
    case UpdatePhase::preparing: return "preparing";
    case UpdatePhase::committing: return "committing";
    case UpdatePhase::retiring: return "retiring";
    case UpdatePhase::failed: return "failed";
  }
  return "unknown";
}

// Scheduler -> gateway -> client: how far the update is.
struct UpdateReport {
  static constexpr MsgKind kind = MsgKind::update_report;
  std::string token;
  bool last = false;
  UpdatePhase phase = UpdatePhase::idle;
  uint64_t version = 0;
  uint64_t digest = 0;        // of the new weights, when it is known
  uint32_t workers = 0;       // that take part
  uint32_t workers_done = 0;  // ready or confirmed, whatever the phase is about
  uint64_t old_requests = 0;  // still running on the old weights
  int64_t prepare_us = 0;     // from the ask until all were ready
  Refusal refusal;            // with phase failed
  BATON_FIELDS(token, last, phase, version, digest, workers, workers_done, old_requests, prepare_us,
               refusal)
};

// ---------------------------------------------------------------- scheduler and worker

// Scheduler -> worker: read, check and pack these weights beside those in use.
struct WeightsPrepare {
  static constexpr MsgKind kind = MsgKind::weights_prepare;
  WeightsOrder order;
  BATON_FIELDS(order)
};

struct WeightsReady {
  static constexpr MsgKind kind = MsgKind::weights_ready;
  uint64_t version = 0;
  uint64_t ticket = 0;
  uint64_t digest = 0;  // of what was read: all workers must say the same
  uint64_t bytes = 0;
  int64_t took_us = 0;
  bool plan_reused = false;
  BATON_FIELDS(version, ticket, digest, bytes, took_us, plan_reused)
};

struct WeightsFailed {
  static constexpr MsgKind kind = MsgKind::weights_failed;
  uint64_t version = 0;
  uint64_t ticket = 0;
  Refusal refusal;
  BATON_FIELDS(version, ticket, refusal)
};

// Scheduler -> worker: requests may run on them now.
struct WeightsCommit {
  static constexpr MsgKind kind = MsgKind::weights_commit;
  uint64_t version = 0;
  BATON_FIELDS(version)
};

struct WeightsCommitted {
  static constexpr MsgKind kind = MsgKind::weights_committed;
  uint64_t version = 0;
  BATON_FIELDS(version)
};

// Scheduler -> worker: what was prepared is not wanted any more.
struct WeightsAbort {
  static constexpr MsgKind kind = MsgKind::weights_abort;
  uint64_t version = 0;
  BATON_FIELDS(version)
};

// Scheduler -> worker: nothing new will run on these; free them when the last that runs has ended.
struct WeightsDrop {
  static constexpr MsgKind kind = MsgKind::weights_drop;
  uint64_t version = 0;
  BATON_FIELDS(version)
};

struct WeightsDropped {
  static constexpr MsgKind kind = MsgKind::weights_dropped;
  uint64_t version = 0;
  BATON_FIELDS(version)
};

}  // namespace baton
