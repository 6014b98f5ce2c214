#pragma once

#include <vector>

#include "runtime/actor/kv_mover.h"
#include "runtime/engine/block_pool.h"

namespace baton {

// Blocks that transfers of the actor's earlier life may still touch: held out of the new pool until
// the mover is done with them. A worker actor owns one beside its pool; owner thread only.
class InheritedBlocks {
 public:
  // Takes what is busy. Call on a pool from which nothing has been taken yet.
  void take(BlockPool& pool, const KvMover& mover);
  // Gives back those that have ended.
  void sweep(const KvMover& mover);
  size_t size() const { return leases_.size(); }

 private:
  std::vector<BlockLease> leases_;
};

}  // namespace baton
