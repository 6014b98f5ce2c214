// Replacing the weights: what clients ask, what workers answer, and what becomes of the requests
// that run. The rules are in weights_update.cpp.

#include <algorithm>
#include <utility>

#include "actors/scheduler/scheduler.h"
#include "runtime/base/log.h"

namespace baton {

// The same ask again (its client's connection broke) hears how far the update is.
void Scheduler::on(Context& context, const Envelope& from, UpdateWeights& message) {
  if (!hear_gateway(context, from)) return;
  if (!weights_.knows(message.token)) {
    std::optional<Refusal> refusal;
    if (draining_) {
      refusal = Refusal{ErrorCode::unavailable, "the cluster is shutting down", 0};
    } else {
      refusal = weights_.begin(message, context.random(), awake(context));
    }
    if (refusal) {
      UpdateReport report;
      report.token = message.token;
      report.last = true;
      report.phase = UpdatePhase::failed;
      report.version = message.version;
      report.refusal = std::move(*refusal);
      return context.send(from.from, report, {{}, {}, from.correlation, kNever});
    }
    log_info("weights: preparing version " + std::to_string(weights_.report().version) + " from " +
             message.source.path + ", policy " + policy_name(message.policy));
  }
  const UpdateReport report = weights_.report();
  if (!report.last) askers_.push_back({from.from, from.correlation});
  context.send(from.from, report, {{}, {}, from.correlation, kNever});
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, WeightsReady& message) {
  if (fence_stale(context, from)) return;
  weights_.ready(from.from, message, awake(context));
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, WeightsFailed& message) {
  if (fence_stale(context, from)) return;
  log_warning("weights: version " + std::to_string(message.version) + " was not prepared on rank " +
              std::to_string(from.from.rank) + ": " + message.refusal.text);
  weights_.failed(from.from, message, awake(context));
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, WeightsCommitted& message) {
  if (fence_stale(context, from)) return;
  weights_.confirmed(from.from, message, awake(context));
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, WeightsDropped& message) {
  if (fence_stale(context, from)) return;
  weights_.dropped(from.from, message);
  pump(context);
}

void Scheduler::command_worker(Context& context, const WeightsUpdate::Command& command) {
  const uint64_t version = command.order.version;
  switch (command.action) {
    case WeightsAction::none: return;
    case WeightsAction::prepare: return context.send(command.worker, WeightsPrepare{command.order});
    case WeightsAction::abort: return context.send(command.worker, WeightsAbort{version});
    case WeightsAction::commit: return context.send(command.worker, WeightsCommit{version});
    case WeightsAction::drop: return context.send(command.worker, WeightsDrop{version});
  }
}

// A switch may end requests, and with the last one on the old version that version may go.
void Scheduler::follow_weights(Context& context) {
  bool more = true;
  while (more) {
    for (const WeightsUpdate::Command& command : weights_.actions(awake(context))) {
      command_worker(context, command);
      if (const Worker* worker = members_.find(command.worker)) refresh(context, *worker);
    }
    more = weights_.take_switch();
    if (more) switch_weights(context);
  }
  if (weights_.take_news()) report_update(context);
}

// New requests run on the new version from here on; those that run follow the update's policy.
void Scheduler::switch_weights(Context& context) {
  if (weights_.previous() != 0) {
    log_info("weights: version " + std::to_string(weights_.current()) + " is served from now on");
  }
  sites_.set_weights(weights_.current());
  for (const auto& [key, worker] : members_.live()) refresh(context, worker);
  for (const RequestId id : requests_.all()) switch_row(context, *requests_.find(id));
}

void Scheduler::switch_row(Context& context, LedgerRow& row) {
  const WeightsPolicy policy = weights_.policy();
  if (row.weights == 0 || row.weights == weights_.current()) return;
  if (policy == WeightsPolicy::finish || row.state == RequestState::closing) return;
  if (policy == WeightsPolicy::abort && row.ran) {
    return apply(context, row, RequestEvent::weights_aborted,
                 {ErrorCode::unavailable,
                  "the weights were replaced by version " + std::to_string(weights_.current()) +
                      ", and the update was to end running requests; submit it again",
                  nullptr, limits_.retry_after_us / kMillisecond});
  }
  if (row.state == RequestState::queued) {
    weights_.bind(row.weights, 0);
    return queue_.bind(row.id, 0);
  }
  if (row.state == RequestState::freezing) return;  // decided when its tokens are known
  apply(context, row, RequestEvent::weights_changed,
        {ErrorCode::cancelled,
         "the weights were replaced by version " + std::to_string(weights_.current())});
}

// What a request that is queued again must run on: 0 where it may have the current version.
uint64_t Scheduler::weights_for(const LedgerRow& row) const {
  if (!row.ran) return 0;
  const bool stays = weights_.policy() == WeightsPolicy::finish && weights_.keeps(row.weights);
  return row.weights == weights_.current() || stays ? row.weights : 0;
}

// Requests that wait for an old version which no pair of instances has any more go on with the
// current one; their results name both.
void Scheduler::unbind_orphans() {
  const uint64_t old = weights_.previous();
  if (old == 0 || weights_.bound_to(old) == 0 || sites_.serve(old)) return;
  for (const RequestId id : requests_.all()) {
    LedgerRow& row = *requests_.find(id);
    if (row.state != RequestState::queued || row.weights != old) continue;
    weights_.bind(row.weights, 0);
    queue_.bind(id, 0);
  }
}

void Scheduler::report_update(Context& context) {
  if (askers_.empty()) return;
  const UpdateReport report = weights_.report();
  for (const Asker& asker : askers_) {
    context.send(asker.gateway, report, {{}, {}, asker.correlation, kNever});
  }
  if (report.last) askers_.clear();
}

}  // namespace baton
