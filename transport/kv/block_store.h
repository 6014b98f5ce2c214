#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/actor/engine.h"
#include "runtime/base/ids.h"
#include "runtime/layout/placement.h"

namespace baton {

// The KV pools of one instance's ranks as its mover sees them; a block id names one block in each.
// `bytes` is thread-safe and outlives the mover.
struct BlockStore {
  Placement placement;
  uint32_t block_count = 0;
  std::function<std::span<std::byte>(uint32_t rank, BlockId)> bytes;
};

inline BlockStore store_of(Engine& engine) {
  return BlockStore{
      engine.placement(), engine.block_count(),
      [&engine](uint32_t rank, BlockId block) { return engine.block_bytes(rank, block); }};
}

}  // namespace baton
