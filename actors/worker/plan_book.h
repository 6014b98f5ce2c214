#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "actors/protocol/worker.h"
#include "runtime/actor/context.h"
#include "runtime/actor/kv_mover.h"
#include "runtime/base/result.h"

namespace baton {

// The reshard plans that a worker has been connected by: checked once, named by their digests from
// then on. A prefill or decode actor owns one; owner thread only.
class PlanBook {
 public:
  // `direction`: what this worker does with a plan. Plans for another placement are not taken.
  PlanBook(const Placement& own, KvDirection direction) : own_(own), direction_(direction) {}

  // Takes the plan in, has the mover make room for it, and answers Connected or ConnectFailed.
  void connect(Context& context, const Envelope& from, Connect& message, KvMover& mover);
  // Null if this worker was never connected by it.
  std::shared_ptr<const RoutedPlan> find(PlanDigest digest) const;
  size_t size() const { return plans_.size(); }

 private:
  Result<std::shared_ptr<const RoutedPlan>> learn(Connect& message);

  static constexpr size_t kPlansMax = 1024;

  const Placement own_;
  const KvDirection direction_;
  std::map<PlanDigest, std::shared_ptr<const RoutedPlan>> plans_;  // shared with the mover's thread
};

}  // namespace baton
