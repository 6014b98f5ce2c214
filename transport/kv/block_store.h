#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "runtime/actor/engine.h"
#include "runtime/base/ids.h"
#include "runtime/layout/geometry.h"

namespace baton {

// The KV pool of one rank as a mover sees it. `bytes` is thread-safe and outlives the mover.
struct BlockStore {
  KvGeometry geometry;
  uint32_t block_count = 0;
  std::function<std::span<std::byte>(BlockId)> bytes;
};

inline BlockStore store_of(Engine& engine) {
  return BlockStore{engine.geometry(), engine.block_count(),
                    [&engine](BlockId block) { return engine.block_bytes(block); }};
}

}  // namespace baton
