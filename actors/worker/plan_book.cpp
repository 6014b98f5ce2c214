#include "actors/worker/plan_book.h"

#include <string>
#include <utility>

#include "runtime/base/log.h"

namespace baton {

Result<std::shared_ptr<const RoutedPlan>> PlanBook::learn(Connect& message) {
  if (message.direction != direction_) {
    return Error{ErrorCode::invalid_argument, "the worker was asked to act the other role"};
  }
  const Placement& mine =
      direction_ == KvDirection::send ? message.plan.source : message.plan.target;
  if (!(mine == own_)) {
    return Error{ErrorCode::conflict,
                 "the plan is for another placement of this instance's KV than it has"};
  }
  if (message.terms.piece_bytes_max == 0 || message.terms.layer_groups == 0) {
    return Error{ErrorCode::invalid_argument, "the terms of the pair are empty"};
  }
  if (const auto known = plans_.find(message.plan.digest); known != plans_.end()) {
    // Another scheduler may divide otherwise; transfers under way keep what they began with.
    if (known->second->terms == message.terms) return known->second;
    if (const Result<void> sound = check_plan(message.plan); !sound.ok()) return sound.error();
    known->second =
        std::make_shared<const RoutedPlan>(route_plan(std::move(message.plan), message.terms));
    return known->second;
  }
  if (const Result<void> sound = check_plan(message.plan); !sound.ok()) return sound.error();
  if (plans_.size() >= kPlansMax) {
    return Error{ErrorCode::busy, "more than " + std::to_string(kPlansMax) +
                                      " different reshard plans are in use here"};
  }
  const PlanDigest digest = message.plan.digest;
  auto routed =
      std::make_shared<const RoutedPlan>(route_plan(std::move(message.plan), message.terms));
  return plans_[digest] = std::move(routed);
}

void PlanBook::connect(Context& context, const Envelope& from, Connect& message, KvMover& mover) {
  const uint64_t pair = message.pair;
  const Result<std::shared_ptr<const RoutedPlan>> learned = learn(message);
  if (!learned.ok()) {
    log_error("no KV can be exchanged with rank " + std::to_string(message.peer.rank) + ": " +
              learned.error().text);
    return context.send(from.from,
                        ConnectFailed{pair, {learned.error().code, learned.error().text, 0}});
  }
  mover.prepare(*learned);
  context.send(from.from, Connected{pair, (*learned)->plan.digest});
}

std::shared_ptr<const RoutedPlan> PlanBook::find(PlanDigest digest) const {
  const auto found = plans_.find(digest);
  return found == plans_.end() ? nullptr : found->second;
}

}  // namespace baton
