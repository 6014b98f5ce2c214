#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <vector>

#include "actors/protocol/weights.h"
#include "runtime/actor/context.h"
#include "runtime/actor/engine.h"

namespace baton {

// A worker's sets of weights: which of them requests may run on here, and its part in an update.
// The sets themselves are the engine's and outlive this life. A prefill or decode actor owns one;
// owner thread only.
class ServedWeights {
 public:
  // Lets go of what an earlier life had prepared: the scheduler has to ask again.
  explicit ServedWeights(Engine& engine);

  // The committed sets, for Register.
  std::vector<WeightsInfo> committed() const;
  uint64_t latest() const;
  // Requests may run on this version here; 0 names the latest one.
  bool serves(uint64_t version) const;
  uint64_t resolve(uint64_t version) const { return version == 0 ? latest() : version; }
  // Why a request for that version is not taken.
  Refusal refusal(uint64_t version, int64_t retry_after_ms) const;

  void on_prepare(Context& context, const WeightsPrepare& message);
  void on_prepared(Context& context, ActorId scheduler, const WeightsPrepared& message);
  void on_commit(Context& context, ActorId scheduler, const WeightsCommit& message);
  void on_abort(const WeightsAbort& message);
  void on_drop(const WeightsDrop& message);
  // Frees what is to go and nothing uses any more, and says so.
  void settle(Context& context, ActorId scheduler, const std::function<bool(uint64_t)>& in_use);

 private:
  Engine& engine_;
  std::set<uint64_t> dropping_;
};

}  // namespace baton
