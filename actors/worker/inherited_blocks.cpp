#include "actors/worker/inherited_blocks.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {

void InheritedBlocks::take(BlockPool& pool, const KvMover& mover) {
  CHECK(leases_.empty());
  for (const BlockId block : mover.busy_blocks()) {
    CHECK_MSG(block.value < pool.size(), "the mover names a block that the pool does not have");
    if (pool.references(block) == 0) leases_.push_back(pool.take_named(block));
  }
}

void InheritedBlocks::sweep(const KvMover& mover) {
  if (leases_.empty()) return;
  const std::vector<BlockId> busy = mover.busy_blocks();
  std::erase_if(leases_, [&](const BlockLease& lease) {
    return std::find(busy.begin(), busy.end(), lease.id()) == busy.end();
  });
}

}  // namespace baton
