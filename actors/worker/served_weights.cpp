#include "actors/worker/served_weights.h"

#include <algorithm>
#include <string>

namespace baton {

ServedWeights::ServedWeights(Engine& engine) : engine_(engine) {
  engine_.drop_weights(kUncommittedWeights);
}

std::vector<WeightsInfo> ServedWeights::committed() const {
  std::vector<WeightsInfo> sets = engine_.weights();
  std::erase_if(sets, [](const WeightsInfo& set) { return !set.committed; });
  return sets;
}

uint64_t ServedWeights::latest() const {
  uint64_t latest = 0;
  for (const WeightsInfo& set : committed()) latest = std::max(latest, set.version);
  return latest;
}

bool ServedWeights::serves(uint64_t version) const {
  const uint64_t wanted = resolve(version);
  if (dropping_.contains(wanted)) return false;
  const std::vector<WeightsInfo> sets = committed();
  return std::any_of(sets.begin(), sets.end(),
                     [&](const WeightsInfo& set) { return set.version == wanted; });
}

Refusal ServedWeights::refusal(uint64_t version, int64_t retry_after_ms) const {
  return {ErrorCode::unavailable,
          "version " + std::to_string(version) + " of the weights is not served here; the latest " +
              "is " + std::to_string(latest()),
          retry_after_ms};
}

void ServedWeights::on_prepare(Context& context, const WeightsPrepare& message) {
  engine_.prepare_weights(message.order, context.self());
}

void ServedWeights::on_prepared(Context& context, ActorId scheduler,
                                const WeightsPrepared& message) {
  if (message.ok) {
    return context.send(scheduler,
                        WeightsReady{message.version, message.ticket, message.digest, message.bytes,
                                     message.took_us, message.plan_reused});
  }
  context.send(scheduler,
               WeightsFailed{message.version, message.ticket, {message.code, message.text, 0}});
}

void ServedWeights::on_commit(Context& context, ActorId scheduler, const WeightsCommit& message) {
  const std::vector<WeightsInfo> sets = engine_.weights();
  const bool here = std::any_of(sets.begin(), sets.end(), [&](const WeightsInfo& set) {
    return set.version == message.version;
  });
  if (!here) return;  // of an order that was called off since
  engine_.commit_weights(message.version);
  context.send(scheduler, WeightsCommitted{message.version});
}

void ServedWeights::on_abort(const WeightsAbort& message) {
  engine_.drop_weights(message.version);
}

void ServedWeights::on_drop(const WeightsDrop& message) {
  dropping_.insert(message.version);
}

void ServedWeights::settle(Context& context, ActorId scheduler,
                           const std::function<bool(uint64_t)>& in_use) {
  for (auto version = dropping_.begin(); version != dropping_.end();) {
    if (in_use(*version)) {
      ++version;
      continue;
    }
    engine_.drop_weights(*version);
    context.send(scheduler, WeightsDropped{*version});
    version = dropping_.erase(version);
  }
}

}  // namespace baton
