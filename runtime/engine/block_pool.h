#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/ids.h"

namespace baton {

class BlockPool;

// A share in one KV block. The last lease on a block returns it to its pool when it is destroyed.
// Move-only; share() makes another lease on the same block. Owner thread only.
class BlockLease {
 public:
  BlockLease() = default;
  BlockLease(BlockLease&& other) noexcept;
  BlockLease& operator=(BlockLease&& other) noexcept;
  BlockLease(const BlockLease&) = delete;
  BlockLease& operator=(const BlockLease&) = delete;
  ~BlockLease();

  BlockId id() const { return id_; }
  bool held() const { return pool_ != nullptr; }
  // Another lease on the same block, which is then read-only for both.
  BlockLease share() const;

 private:
  friend class BlockPool;
  BlockLease(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}
  void give_back() noexcept;

  BlockPool* pool_ = nullptr;
  BlockId id_;
};

// Which KV blocks of one rank are free: ids and reference counts, no bytes. Deterministic: the same
// calls give the same ids (lowest free id first). Owned by the actor of the rank; owner thread
// only. The destructor CHECKs that every block has come home.
class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks);
  ~BlockPool();
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  uint32_t size() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t free() const { return free_; }
  uint32_t used() const { return size() - free_; }

  // All of them, or none (an empty vector) when fewer are free. `count` 0 gives an empty vector
  // too.
  std::vector<BlockLease> take(uint32_t count);
  // A named block that must be free: keeps what a dead peer may still write out of use.
  BlockLease take_named(BlockId id);
  uint32_t references(BlockId id) const { return references_[id.value]; }

  // A cache keeps a lease on the block only as long as nobody else needs the room: while that lease
  // is the only one, the block is idle.
  void set_kept(BlockId id, bool kept);
  bool kept(BlockId id) const { return kept_[id.value]; }
  uint32_t kept_idle() const { return kept_idle_; }
  // References other than the cache's.
  uint32_t users(BlockId id) const { return references_[id.value] - (kept_[id.value] ? 1 : 0); }

 private:
  friend class BlockLease;
  void add_reference(BlockId id);
  void drop_reference(BlockId id) noexcept;

  std::vector<uint32_t> references_;
  std::vector<uint64_t> free_bits_;  // one bit per block: 1 = free
  std::vector<bool> kept_;
  uint32_t free_ = 0;
  uint32_t kept_idle_ = 0;
  uint32_t search_from_ = 0;  // no free block in words below this
};

std::vector<BlockId> block_ids(const std::vector<BlockLease>& leases);

}  // namespace baton
