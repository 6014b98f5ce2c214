#include "actors/worker/earlier_life.h"

#include <algorithm>

#include "actors/worker/joining.h"
#include "runtime/actor/actor.h"
#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr Micros kPollPeriod = 5 * kMillisecond;

}  // namespace

bool EarlierLife::ended(Context& context, const Engine& engine, BlockPool& pool,
                        const KvMover& mover) {
  if (over_) return false;
  if (engine.busy()) {
    context.set_timer(kPollPeriod, static_cast<uint32_t>(WorkerTimer::earlier_life));
    return false;
  }
  over_ = true;
  for (const BlockId block : mover.busy_blocks()) {
    CHECK_MSG(block.value < pool.size(), "the mover names a block that the pool does not have");
    if (pool.references(block) == 0) leases_.push_back(pool.take_named(block));
  }
  return true;
}

void EarlierLife::sweep(const KvMover& mover) {
  if (leases_.empty()) return;
  const std::vector<BlockId> busy = mover.busy_blocks();
  std::erase_if(leases_, [&](const BlockLease& lease) {
    return std::find(busy.begin(), busy.end(), lease.id()) == busy.end();
  });
}

void check_quarantine(size_t blocks, const Limits& limits) {
  if (blocks > limits.quarantined_blocks_max) {
    throw ActorBroken("too many KV blocks are in quarantine; the instance must start over");
  }
}

}  // namespace baton
