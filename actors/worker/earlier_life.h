#pragma once

#include <cstddef>
#include <vector>

#include "runtime/actor/context.h"
#include "runtime/actor/engine.h"
#include "runtime/actor/kv_mover.h"
#include "runtime/base/limits.h"
#include "runtime/engine/block_pool.h"

namespace baton {

// What an earlier life of a worker actor has left behind: a step that the engine still computes,
// and blocks that transfers may still touch. They are held out of the new pool until the mover is
// done with them. A worker actor owns one beside its pool; owner thread only.
class EarlierLife {
 public:
  // True once: when the engine has finished what was begun, which may write blocks of the pool.
  // Takes the blocks that are still busy; nothing may have been taken from the pool before. Until
  // then it sets WorkerTimer::earlier_life, and is to be asked again when that fires.
  bool ended(Context& context, const Engine& engine, BlockPool& pool, const KvMover& mover);
  bool over() const { return over_; }

  // Gives back the blocks that have ended.
  void sweep(const KvMover& mover);
  size_t blocks() const { return leases_.size(); }

 private:
  std::vector<BlockLease> leases_;
  bool over_ = false;
};

// Throws ActorBroken when more blocks than the limit are out of use: the instance must start over.
void check_quarantine(size_t blocks, const Limits& limits);

}  // namespace baton
