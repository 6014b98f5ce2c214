#include "launch/sim/checkers/rest_checker.h"

namespace baton {
namespace {

class Unrest {
 public:
  void expect(const std::string& what, uint64_t value, uint64_t at_rest) {
    if (value == at_rest) return;
    list_.push_back(what + ": " + std::to_string(value) + ", at rest " + std::to_string(at_rest));
  }
  void missing(const std::string& what) { list_.push_back(what + " is not there"); }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
};

void look_at_control(const SimCluster& cluster, Unrest& unrest) {
  if (const Scheduler* scheduler = cluster.scheduler()) {
    unrest.expect("rows of the request ledger", scheduler->requests().size(), 0);
    unrest.expect("queued requests", scheduler->queued(), 0);
    const UpdatePhase phase = scheduler->weights().phase();
    const bool over = phase == UpdatePhase::idle || phase == UpdatePhase::failed;
    unrest.expect("updates of the weights under way", over ? 0 : 1, 0);
    unrest.expect("old weights that are kept", scheduler->weights().previous(), 0);
    const auto slots = scheduler->leases().slots_by_state();
    for (LeaseState state : {LeaseState::reserved, LeaseState::active, LeaseState::quarantined}) {
      unrest.expect(std::string("slots ") + lease_state_name(state),
                    slots[static_cast<size_t>(state)], 0);
    }
  } else {
    unrest.missing("the scheduler");
  }
  if (const Gateway* gateway = cluster.gateway()) {
    unrest.expect("live streams of the gateway", gateway->live_requests(), 0);
  } else {
    unrest.missing("the gateway");
  }
}

// A worker has the set that is served and no other.
void look_at_weights(const SimCluster& cluster, ActorId worker, const std::string& name,
                     Unrest& unrest) {
  const Scheduler* scheduler = cluster.scheduler();
  const FakeEngine* engine = cluster.engine(worker);
  if (scheduler == nullptr || engine == nullptr) return;
  const std::vector<WeightsInfo> sets = engine->weights();
  unrest.expect("sets of weights of " + name, sets.size(), 1);
  for (const WeightsInfo& set : sets) {
    unrest.expect("weights version of " + name, set.version, scheduler->weights().current());
  }
}

}  // namespace

std::vector<std::string> unrest(const SimCluster& cluster) {
  Unrest unrest;
  look_at_control(cluster, unrest);
  for (uint32_t rank : cluster.prefill_ranks()) {
    const std::string name = "prefill rank " + std::to_string(rank);
    const Prefill* prefill = cluster.prefill(rank);
    if (!prefill) {
      unrest.missing(name);
      continue;
    }
    unrest.expect("free blocks of " + name, prefill->blocks_free(), cluster.blocks_at(rank, true));
    unrest.expect("jobs of " + name, prefill->jobs(), 0);
    look_at_weights(cluster, cluster.life(rank, kPrefillSlot), name, unrest);
  }
  for (uint32_t rank : cluster.decode_ranks()) {
    const std::string name = "decode rank " + std::to_string(rank);
    const Decode* decode = cluster.decode(rank);
    if (!decode) {
      unrest.missing(name);
      continue;
    }
    unrest.expect("free blocks of " + name, decode->blocks_free(), cluster.blocks_at(rank, false));
    unrest.expect("free slots of " + name, decode->slots_free(),
                  cluster.plan().limits.decode_slots);
    unrest.expect("reservations of " + name, decode->reservations(), 0);
    unrest.expect("kept streams of " + name, decode->streams(), 0);
    look_at_weights(cluster, cluster.life(rank, kDecodeSlot), name, unrest);
    unrest.expect("blocks under transfer at " + name,
                  cluster.fabric().written_blocks(*cluster.decode_mover(rank)).size(), 0);
  }
  return unrest.take();
}

}  // namespace baton
