#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/weights.h"
#include "actors/protocol/worker.h"
#include "actors/scheduler/worker_key.h"
#include "runtime/actor/actor_id.h"
#include "runtime/base/limits.h"
#include "runtime/base/time.h"

namespace baton {

// What a worker has of one version, as the scheduler knows it.
enum class HoldState : uint8_t {
  none = 0,
  preparing = 1,
  ready = 2,
  committed = 3,
  dropping = 4,
  failed = 5,  // it could not be prepared there
};
// What it should have of it.
enum class WantState : uint8_t {
  nothing = 0,
  prepared = 1,   // the candidate of an update
  committed = 2,  // the current version
  kept = 3,       // an old one, as long as requests run on it; nobody gets it anew
};
enum class WeightsAction : uint8_t { none = 0, prepare = 1, abort = 2, commit = 3, drop = 4 };

// The whole policy towards one worker: what it is told, by what it has and what it should have.
WeightsAction weights_action(HoldState hold, WantState want) noexcept;

struct WeightsCounters {
  uint64_t updates = 0;  // asked for and begun
  uint64_t committed = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;
  uint64_t brought_up = 0;    // workers that joined with older weights and have the current ones
  uint64_t plans_reused = 0;  // preparations whose weight plan was known already
  uint64_t dropped = 0;       // sets that workers have let go of
};

// Which weights are served, who has them, and the one update that may be under way. Pure: events
// in, actions and reports out; the scheduler owns it, its thread only. It is driven by levels: for
// each worker and version it knows what is there and what should be, whatever happened before, so
// that a worker that joins in the middle, or comes back with old weights, is brought up to date by
// the same rules.
class WeightsUpdate {
 public:
  explicit WeightsUpdate(const Limits& limits) : limits_(limits) {}

  struct Command {
    ActorId worker;
    WeightsAction action = WeightsAction::none;
    WeightsOrder order;
  };

  // ---- workers
  // A sentence when the worker holds other weights under a number that is served.
  std::optional<Refusal> fault(const Register& info) const;
  void join(ActorId worker, const Register& info);
  void leave(ActorId worker, Micros now);
  void ready(ActorId worker, const WeightsReady& message, Micros now);
  void failed(ActorId worker, const WeightsFailed& message, Micros now);
  void confirmed(ActorId worker, const WeightsCommitted& message, Micros now);
  void dropped(ActorId worker, const WeightsDropped& message);

  // ---- asks
  // Begins an update, or says why not. A `ticket` was never used before.
  std::optional<Refusal> begin(const UpdateWeights& ask, uint64_t ticket, Micros now);
  // The ask with this token is the update that runs, or was the last one.
  bool knows(const std::string& token) const;
  void tick(Micros now);

  // ---- requests: `bound` is the version that a request is counted for, 0 for none
  void bind(uint64_t& bound, uint64_t version);
  uint64_t bound_to(uint64_t version) const;
  // A request that runs on this version may stay with it.
  bool keeps(uint64_t version) const;

  // ---- what follows
  // Messages that are due to workers. To be called after every event.
  std::vector<Command> actions(Micros now);
  // True once, when another version has become the current one: requests follow `policy()`.
  bool take_switch();
  // The state has changed in a way that workers or clients may have to hear of.
  bool has_news() const { return news_ || switched_; }
  bool take_news();  // true once
  UpdateReport report() const;

  uint64_t current() const { return current_.number; }
  uint64_t previous() const { return previous_ ? previous_->number : 0; }
  WeightsPolicy policy() const { return ask_.policy; }
  UpdatePhase phase() const { return phase_; }
  // The versions that requests may run on at a worker.
  std::vector<uint64_t> served_by(ActorId worker) const;
  // What is wrong with a worker that is not up to date; empty if nothing is.
  std::string trouble(ActorId worker) const;
  const WeightsCounters& counters() const { return counters_; }

 private:
  struct Version {
    uint64_t number = 0;
    uint64_t digest = 0;  // 0: not known yet
    uint64_t ticket = 0;
    WeightsSource source;
  };
  struct Hold {
    HoldState state = HoldState::none;
    uint64_t ticket = 0;
    bool confirmed = false;  // it has said that it is committed
    bool plan_reused = false;
    Micros retry_at = 0;  // after a failure
  };
  struct Member {
    ActorId id;
    std::map<uint64_t, Hold> holds;
    std::string trouble;
  };

  Member* find(ActorId worker);
  const Member* find(ActorId worker) const;
  const Version* version(uint64_t number) const;
  WantState want(uint64_t number) const;
  void adopt(const WeightsInfo& info);
  // The update goes on if what it waits for has happened.
  void evaluate(Micros now);
  void fail(Refusal refusal);
  void commit(Micros now);
  bool may_drop(const Member& member, uint64_t number) const;
  size_t in_memory(const Member& member) const;
  void retire();
  void perform(Member& member, uint64_t number, WeightsAction action, std::vector<Command>& out);
  uint32_t done_count() const;

  const Limits limits_;
  std::map<WorkerKey, Member> members_;
  Version current_;
  std::optional<Version> previous_;
  std::optional<Version> candidate_;
  std::vector<Command> unwanted_;       // sets that are ready somewhere and wrong
  std::map<uint64_t, uint64_t> bound_;  // requests by version
  uint64_t highest_ = 0;                // ever committed

  UpdateWeights ask_;  // of the update that runs, or ran last
  UpdatePhase phase_ = UpdatePhase::idle;
  Refusal refusal_;  // of one that failed
  uint64_t reported_version_ = 0;
  uint64_t reported_digest_ = 0;
  Micros begun_at_ = 0;
  Micros due_ = kNever;
  int64_t prepare_us_ = 0;
  bool switched_ = false;
  bool news_ = false;
  WeightsCounters counters_;
};

}  // namespace baton
