#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "actors/decode/decode.h"
#include "actors/gateway/gateway.h"
#include "actors/prefill/prefill.h"
#include "actors/scheduler/scheduler.h"
#include "launch/sim/saboteur.h"
#include "launch/sim/swarm_plan.h"
#include "runtime/engine/fake_engine.h"
#include "runtime/sim/network.h"
#include "runtime/sim/world.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_link.h"
#include "transport/sim/sim_mover.h"

namespace baton {

struct SimClusterHooks {
  std::function<void(const std::string&)> trace;
  std::function<void(Mail)> to_client;  // what the gateway sends to clients
  // Sees a batch when its step reads and writes blocks.
  std::function<void(const SimMover& mover, const Batch&)> watch_step;
  // Changes what an engine is given to compute; may be empty.
  std::function<void(Batch&)> change_batch;
  // Breaks an actor from outside; empty functions leave it alone.
  std::function<std::pair<Saboteur::Change, Saboteur::Change>(uint32_t rank, uint32_t slot)>
      sabotage;
};

// A whole cluster in one world: the real gateway and scheduler on rank 0, one real prefill or
// decode actor on each other rank (or all four in one process, where the plan says so), over the
// simulator's links, data plane and engines. The harness owns it.
class SimCluster {
 public:
  SimCluster(uint64_t seed, const SwarmPlan& plan, SimClusterHooks hooks);
  ~SimCluster();
  SimCluster(const SimCluster&) = delete;
  SimCluster& operator=(const SimCluster&) = delete;

  World& world() { return world_; }
  Network& network() { return network_; }
  SimFabric& fabric() { return fabric_; }
  const SimFabric& fabric() const { return fabric_; }
  const SwarmPlan& plan() const { return plan_; }
  const FakeModel& model() const { return model_; }
  const Tokenizer& tokenizer() const { return text_->tokenizer; }

  const std::vector<uint32_t>& prefill_ranks() const { return prefill_ranks_; }
  const std::vector<uint32_t>& decode_ranks() const { return decode_ranks_; }
  // Those that may end: rank 0 is none of them.
  std::vector<uint32_t> worker_ranks() const;

  // The living actors; null while there is none.
  const Gateway* gateway() const;
  const Scheduler* scheduler() const;
  const Prefill* prefill(uint32_t rank) const;
  const Decode* decode(uint32_t rank) const;
  const SimMover* decode_mover(uint32_t rank) const;  // precondition: decode(rank)

  // Every worker is up, and the scheduler has taken it in.
  bool all_joined() const;

 private:
  void boot_control(SimHost& host);
  void boot_worker(SimHost& host, bool prefill);
  FakeEngineOptions engine_options(SimHost& host, bool prefill, const SimMover*& mover);
  std::unique_ptr<Actor> wrap(uint32_t rank, uint32_t slot, std::unique_ptr<Actor> actor) const;
  template <class A, class Options>
  ActorFactory factory(uint32_t rank, uint32_t slot, const Options& options);
  const Actor* living(uint32_t rank, uint32_t slot) const;

  const SwarmPlan plan_;
  const SimClusterHooks hooks_;
  const FakeModel model_;
  const std::shared_ptr<const ModelText> text_;  // shared with work on the pool
  World world_;
  Network network_;
  SimSwitch switch_;
  SimFabric fabric_;
  std::vector<uint32_t> prefill_ranks_;
  std::vector<uint32_t> decode_ranks_;
  // The actor that the factory of each place made last; alive while its place is.
  std::map<std::pair<uint32_t, uint32_t>, const Actor*> actors_;
  std::map<std::pair<uint32_t, uint32_t>, const SimMover*> movers_;
};

}  // namespace baton
