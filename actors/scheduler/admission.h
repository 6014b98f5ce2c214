#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "actors/protocol/scheduler.h"
#include "actors/scheduler/sites.h"
#include "runtime/base/limits.h"
#include "runtime/base/time.h"

// Who may come in, and who is next. Pure; owned by the scheduler, its thread only.

namespace baton {

// How loaded the scheduler is when a request arrives.
struct AdmitLoad {
  size_t queued = 0;
  size_t live = 0;
  bool draining = false;
  bool serving = true;           // prefill and decode are there, or were until just now
  Micros remaining_us = kNever;  // of the request
  Micros retry_after_us = 0;
};

// The refusal that `ask` gets, or nothing when it may be queued. A request that no instance could
// ever take is refused now, with both numbers, and not when its turn comes.
std::optional<Refusal> refuse_admit(const Admit& ask, const AdmitLoad& load, const Reach& reach,
                                    const Limits& limits);

// The positions and slots that are needed for what is left of a request.
Need need_of(const Admit& ask, const Remainder& left);

// A request's place in the line: retries first, then the lower level, then what is due earlier,
// then what came earlier.
struct QueueRank {
  bool fresh = true;
  int64_t level = 0;  // see AdmissionQueue::level_of
  Micros due = 0;
  uint64_t arrival = 0;
  friend auto operator<=>(const QueueRank&, const QueueRank&) = default;
};

struct AdmissionPolicy {
  size_t scan_max = 16;     // requests looked at to find one that fits
  uint32_t skips_max = 32;  // times a request may be overtaken before an instance is kept for it
  Micros patience_us = 60 * kSecond;  // a request without a deadline is due after this
  Micros ageing_us = 5 * kSecond;     // waiting for so long counts as much as one priority
  int32_t priority_max = 20;          // priorities are taken as -priority_max ... priority_max
};

// The requests that wait for capacity. One that does not fit now is overtaken by smaller ones
// behind it, but at most skips_max times: then a decode instance is kept free for it. One that no
// live instance could ever take is parked and does not stand in the way.
//
// Nothing starves: a level is the time of arrival, in units of ageing, less the priority. So a
// request of priority p is overtaken by one of priority q > p only if that came less than
// (q - p + 1) units later; within a unit, the earlier deadline goes first.
class AdmissionQueue {
 public:
  explicit AdmissionQueue(const AdmissionPolicy& policy) : policy_(policy) {}

  void push(RequestId request, const QueueRank& rank, const Need& need,
            std::vector<PrefixHash> prefix = {});
  // False: it was not here.
  bool remove(RequestId request);
  size_t size() const { return entries_.size(); }
  bool contains(RequestId request) const { return entries_.contains(request); }

  struct Next {
    RequestId request;
    std::optional<WorkerKey> source;  // none: the target computes the prompt itself
    WorkerKey target;
    uint32_t local_tokens = 0;
    uint64_t weights = 0;  // of its need
  };
  // A waiting request is bound to a version of the weights from now on; 0: to none.
  void bind(RequestId request, uint64_t weights);
  // The next request that can be placed, removed from the queue.
  std::optional<Next> take(const Sites& sites, Micros now);

  // A new instance has joined: parked requests get another look (and keep their time of parking
  // if it does not help).
  void unpark();
  // A request that has been parked since before then, if any.
  std::optional<RequestId> parked_since_before(Micros instant) const;

  Micros due_of(Micros deadline, Micros now) const;
  int64_t level_of(int32_t priority, Micros arrived) const;

 private:
  struct Entry {
    QueueRank rank;
    Need need;
    std::vector<PrefixHash> prefix;
    uint32_t skipped = 0;
    std::optional<WorkerKey> kept;  // the decode instance that is kept free for it
    bool parked = false;
    Micros parked_at = kNever;  // since when no instance could take it
  };
  using Line = std::set<std::pair<QueueRank, RequestId>>;

  void keep_instance(Entry& entry, const Sites& sites);

  AdmissionPolicy policy_;
  std::map<RequestId, Entry> entries_;
  Line line_;                                      // those not parked
  std::set<std::pair<Micros, RequestId>> parked_;  // oldest first
};

}  // namespace baton
