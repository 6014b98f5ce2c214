#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "actors/protocol/worker.h"
#include "actors/scheduler/worker_key.h"
#include "runtime/base/time.h"
#include "runtime/layout/transfer.h"

namespace baton {

// How KV moves between one prefill and one decode life, and whether both have agreed to it.
struct Pair {
  uint64_t number = 0;
  ActorId source;
  ActorId target;
  ActorId newcomer;  // the one of the two that joined later
  const RoutedPlan* plan = nullptr;
  bool source_agreed = false;
  bool target_agreed = false;
  Micros asked_at = 0;

  bool agreed() const { return source_agreed && target_agreed; }
};

struct PairCounters {
  uint64_t connected = 0;
  uint64_t failed = 0;  // ConnectFailed
};

// All pairs of living workers. A newcomer takes no work before all pairs that it came to are agreed
// on; those that were there go on meanwhile. Pure; owned by the scheduler, its thread only.
class Pairs {
 public:
  struct Question {
    ActorId to;
    Connect message;
  };

  void set_terms(const PairTerms& terms) { terms_ = terms; }
  // The plan is one that membership made for the two.
  void add(ActorId source, ActorId target, bool source_is_new, const Plan& plan, Micros now);
  // What is to be asked of both ends of the pairs that `newcomer` came to.
  std::vector<Question> questions(ActorId newcomer) const;
  // The questions that were not answered for too long; they are asked again from now on.
  std::vector<Question> overdue(Micros now);

  // The pair, if the answer is from one of its ends; otherwise null.
  const Pair* agree(ActorId from, const Connected& answer);
  const Pair* fail(ActorId from, uint64_t pair);
  // The life has ended. Those who waited for nobody else are returned: they can be given work now.
  std::vector<ActorId> leave(ActorId life);

  bool ready(ActorId newcomer) const { return !waits_.contains(newcomer); }
  size_t open() const { return open_.size(); }  // not agreed on yet
  // Precondition: both live.
  const RoutedPlan& plan(WorkerKey source, WorkerKey target) const;
  const PairCounters& counters() const { return counters_; }

 private:
  using Key = std::pair<WorkerKey, WorkerKey>;  // source and target
  // One that is not agreed on yet.
  Pair* find_open(ActorId from, uint64_t number);
  // True if its newcomer waits for nobody any more.
  bool close(const Pair& pair);
  void ask(const Pair& pair, std::vector<Question>& out) const;

  PairTerms terms_;
  std::map<Key, Pair> pairs_;
  std::map<uint64_t, Key> open_;       // those not agreed on, by number
  std::map<ActorId, uint32_t> waits_;  // how many of them a newcomer waits for
  std::map<PlanDigest, RoutedPlan> routed_;
  uint64_t last_ = 0;
  PairCounters counters_;
};

}  // namespace baton
