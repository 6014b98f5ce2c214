#pragma once

#include <map>
#include <set>
#include <vector>

#include "actors/protocol/decode.h"
#include "launch/sim/findings.h"
#include "runtime/actor/engine.h"

namespace baton {

// No block and no slot is in two live leases of one decode life: from the Reserved that names them
// to the Adopted after which the blocks belong to running sequences, and the SlotFreed that gives
// the slots back. And within a step, no row writes a block that another one uses. The harness shows
// it what decode actors post, and every step.
class LeaseChecker {
 public:
  explicit LeaseChecker(Findings& findings) : findings_(findings) {}

  void posted(const Mail& mail);
  void step(uint32_t rank, const Batch& batch, uint32_t block_tokens);

 private:
  struct Decode {
    uint32_t incarnation = 0;
    std::map<BlockId, TransferId> blocks;
    std::map<SlotId, std::pair<Generation, TransferId>> slots;
  };
  Decode& life_of(const ActorId& actor);
  void reserved(const ActorId& actor, const Reserved& reserved);
  void adopted(const ActorId& actor, TransferId transfer);
  void freed(const ActorId& actor, const SlotLease& slot);

  Findings& findings_;
  std::map<uint32_t, Decode> decodes_;  // by rank
};

}  // namespace baton
