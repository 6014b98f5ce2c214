#pragma once

#include <map>
#include <utility>
#include <vector>

#include "launch/sim/saboteur.h"
#include "launch/sim/sim_options.h"
#include "launch/sim/swarm_plan.h"
#include "runtime/actor/engine.h"
#include "runtime/base/ids.h"
#include "transport/sim/sim_fabric.h"

namespace baton {

// How one broken variant is made, from outside of the actors: by changing what one of them hears
// or says, what reaches a client, or how the data plane behaves. Owned by one run.
class SabotageKit {
 public:
  explicit SabotageKit(Sabotage sabotage) : sabotage_(sabotage) {}

  void adjust(SwarmPlan& plan) const;
  FabricSabotage fabric() const;
  // What the actor of a place hears and says.
  std::pair<Saboteur::Change, Saboteur::Change> for_actor(uint32_t slot);
  // What an engine is given to compute.
  void change_batch(Batch& batch) const;
  // What becomes of a message to a client: nothing, itself, or more.
  std::vector<Mail> to_client(const Mail& mail);

 private:
  bool hear_gateway(Mail& mail);
  bool hear_decode(const Mail& mail);
  bool say_decode(Mail& mail);

  const Sabotage sabotage_;
  std::map<RequestId, Epoch> epochs_;
  std::vector<BlockId> last_reserved_;
  SlotLease last_freed_;
  uint64_t count_ = 0;
};

}  // namespace baton
