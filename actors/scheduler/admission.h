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

// A request's place in the line: retries first, then higher priority, then what is due earlier,
// then what came earlier.
struct QueueRank {
  bool fresh = true;
  int32_t urgency = 0;  // minus the priority
  Micros due = 0;
  uint64_t arrival = 0;
  friend auto operator<=>(const QueueRank&, const QueueRank&) = default;
};

struct AdmissionPolicy {
  size_t scan_max = 16;     // requests looked at to find one that fits
  uint32_t skips_max = 32;  // times a request may be overtaken before an instance is kept for it
  Micros patience_us = 60 * kSecond;  // a request without a deadline is due after this
};

// The requests that wait for capacity. One that does not fit now is overtaken by smaller ones
// behind it, but at most skips_max times: then a decode instance is kept free for it. One that no
// live instance could ever take is parked and does not stand in the way.
class AdmissionQueue {
 public:
  explicit AdmissionQueue(const AdmissionPolicy& policy) : policy_(policy) {}

  void push(RequestId request, const QueueRank& rank, const Need& need);
  // False: it was not here.
  bool remove(RequestId request);
  size_t size() const { return entries_.size(); }
  bool contains(RequestId request) const { return entries_.contains(request); }

  struct Next {
    RequestId request;
    WorkerKey source;
    WorkerKey target;
  };
  // The next request that can be placed, removed from the queue.
  std::optional<Next> take(const Sites& sites, Micros now);

  // A new instance has joined: parked requests get another look (and keep their time of parking
  // if it does not help).
  void unpark();
  // A request that has been parked since before then, if any.
  std::optional<RequestId> parked_since_before(Micros instant) const;

  Micros due_of(Micros deadline, Micros now) const;

 private:
  struct Entry {
    QueueRank rank;
    Need need;
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
