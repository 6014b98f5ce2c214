#include "launch/sim/checkers/weights_checker.h"

#include <algorithm>

#include "runtime/engine/fake_model.h"

namespace baton {
namespace {

const WeightsInfo* find_set(const std::vector<WeightsInfo>& sets, uint64_t version) {
  const auto found = std::find_if(sets.begin(), sets.end(),
                                  [&](const WeightsInfo& set) { return set.version == version; });
  return found == sets.end() ? nullptr : &*found;
}

}  // namespace

WeightsChecker::WeightsChecker(const SimCluster& cluster, Findings& findings)
    : cluster_(cluster), findings_(findings) {
  committed_[kFirstWeights] = kFakeFirstWeights;
}

const uint64_t* WeightsChecker::weights_of(uint64_t version) const {
  const auto found = committed_.find(version);
  return found == committed_.end() ? nullptr : &found->second;
}

void WeightsChecker::posted(const Mail& mail) {
  if (mail.envelope.kind == WeightsCommit::kind) return commit(mail);
  if (mail.envelope.kind != WeightsFailed::kind) return;
  const Result<WeightsFailed> failed = decode_body<WeightsFailed>(mail.body, Limits{});
  if (failed.ok() && failed->refusal.code == ErrorCode::busy) {
    findings_.add("weights", "a worker was told to prepare a third set of weights");
  }
}

// The first of its version decides; later ones are for workers that have caught up.
void WeightsChecker::commit(const Mail& mail) {
  const Result<WeightsCommit> message = decode_body<WeightsCommit>(mail.body, Limits{});
  if (!message.ok()) return;
  const uint64_t version = message->version;
  const FakeEngine* engine = cluster_.engine(mail.envelope.to);
  if (engine != nullptr) {
    const std::vector<WeightsInfo> sets = engine->weights();
    const WeightsInfo* set = find_set(sets, version);
    if (set == nullptr) {
      findings_.add("weights", "version " + std::to_string(version) + " is committed on rank " +
                                   std::to_string(mail.envelope.to.rank) +
                                   ", which has not prepared it");
    } else if (const auto [known, fresh] = committed_.emplace(version, set->digest);
               !fresh && known->second != set->digest) {
      findings_.add("weights", "version " + std::to_string(version) + " is other weights on rank " +
                                   std::to_string(mail.envelope.to.rank) + " than before");
    }
  }
  check_members(version);
}

// Whoever is a member must be ready; who has ended, or begun a new life, without the scheduler
// knowing of it yet is excused.
void WeightsChecker::check_members(uint64_t version) {
  const Scheduler* scheduler = cluster_.scheduler();
  if (scheduler == nullptr || scheduler->weights().phase() != UpdatePhase::committing) return;
  for (const auto& [key, worker] : scheduler->members().live()) {
    const FakeEngine* engine = cluster_.engine(worker.id);
    const std::vector<uint64_t> served = scheduler->weights().served_by(worker.id);
    const bool takes_part = std::find(served.begin(), served.end(), version) != served.end();
    if (engine == nullptr || !takes_part) continue;
    if (find_set(engine->weights(), version) == nullptr) {
      findings_.add("weights", "version " + std::to_string(version) +
                                   " is committed although rank " + std::to_string(key.rank) +
                                   " is not ready");
    }
  }
}

}  // namespace baton
