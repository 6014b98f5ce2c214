#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kv_layout.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/engine/compute.h"
#include "runtime/engine/mapped_memory.h"
#include "runtime/layout/kv_layout_of.h"

namespace baton {

// The bytes of an engine's KV blocks, one mapping, block after block. Which blocks are free is the
// business of BlockPool. All accessors are thread-safe; who may touch which block is decided by its
// leases.
//
// Elements of positions that were never written are zero (numerics.md rule 6: attention multiplies
// them by a zero probability). A new store is zero; after that, the step that writes the first
// position of a block zeroes what it does not fill (StepRows::fresh_blocks). So whoever hands over
// a partly filled block hands over all its bytes.
class KvStore {
 public:
  static Result<KvStore> allocate(const KvGeometry& geometry, uint32_t blocks);
  // Over memory of somebody else's that outlives it: zero, 64-byte aligned, block_bytes x blocks.
  static KvStore over(const KvGeometry& geometry, uint32_t blocks, std::byte* memory);

  const KvGeometry& geometry() const { return geometry_; }
  const KvLayout& layout() const { return layout_; }
  uint32_t block_count() const { return blocks_; }
  std::byte* pool() const { return pool_; }
  std::span<std::byte> block(BlockId id) const {
    CHECK(id.value < blocks_);
    return {pool_ + id.value * block_bytes_, block_bytes_};
  }

  // Writes every page once, so that no step waits for the system to find memory.
  void fault_in(Compute& compute);

 private:
  KvGeometry geometry_;
  KvLayout layout_;
  std::size_t block_bytes_ = 0;
  uint32_t blocks_ = 0;
  MappedMemory memory_;  // empty over memory of somebody else's
  std::byte* pool_ = nullptr;
};

}  // namespace baton
