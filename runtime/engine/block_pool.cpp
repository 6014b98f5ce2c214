#include "runtime/engine/block_pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "runtime/base/check.h"

namespace baton {

BlockLease::BlockLease(BlockLease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), id_(other.id_) {}

BlockLease& BlockLease::operator=(BlockLease&& other) noexcept {
  if (this != &other) {
    give_back();
    pool_ = std::exchange(other.pool_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

BlockLease::~BlockLease() {
  give_back();
}

BlockLease BlockLease::share() const {
  CHECK(held());
  pool_->add_reference(id_);
  return BlockLease(pool_, id_);
}

void BlockLease::give_back() noexcept {
  if (pool_) std::exchange(pool_, nullptr)->drop_reference(id_);
}

BlockPool::BlockPool(uint32_t blocks)
    : references_(blocks, 0),
      free_bits_((blocks + 63) / 64, ~uint64_t{0}),
      kept_(blocks),
      free_(blocks) {
  if (blocks % 64 != 0) free_bits_.back() = (uint64_t{1} << (blocks % 64)) - 1;
}

BlockPool::~BlockPool() {
  CHECK_MSG(free_ == size(), "a KV block did not come home");
}

std::vector<BlockLease> BlockPool::take(uint32_t count) {
  std::vector<BlockLease> leases;
  if (count > free_) return leases;
  leases.reserve(count);
  while (leases.size() < count) {
    while (free_bits_[search_from_] == 0) ++search_from_;
    const auto bit = static_cast<uint32_t>(std::countr_zero(free_bits_[search_from_]));
    leases.push_back(take_named({search_from_ * 64 + bit}));
  }
  return leases;
}

BlockLease BlockPool::take_named(BlockId id) {
  CHECK(id.value < size());
  CHECK_MSG(references_[id.value] == 0, "the block is in use");
  references_[id.value] = 1;
  free_bits_[id.value / 64] &= ~(uint64_t{1} << (id.value % 64));
  --free_;
  return BlockLease(this, id);
}

void BlockPool::add_reference(BlockId id) {
  CHECK(references_[id.value] > 0);
  if (++references_[id.value] == 2 && kept_[id.value]) --kept_idle_;
}

void BlockPool::set_kept(BlockId id, bool kept) {
  CHECK(references_[id.value] > 0 && kept_[id.value] != kept);
  kept_[id.value] = kept;
  if (references_[id.value] == 1) kept_idle_ += kept ? 1 : -1u;
}

void BlockPool::drop_reference(BlockId id) noexcept {
  CHECK(references_[id.value] > 0);
  if (--references_[id.value] > 0) {
    if (references_[id.value] == 1 && kept_[id.value]) ++kept_idle_;
    return;
  }
  CHECK_MSG(!kept_[id.value], "a cached block went home behind its cache's back");
  free_bits_[id.value / 64] |= uint64_t{1} << (id.value % 64);
  search_from_ = std::min(search_from_, id.value / 64);
  ++free_;
}

std::vector<BlockId> block_ids(const std::vector<BlockLease>& leases) {
  std::vector<BlockId> ids;
  ids.reserve(leases.size());
  for (const BlockLease& lease : leases) ids.push_back(lease.id());
  return ids;
}

}  // namespace baton
