#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/engine/block_pool.h"
#include "runtime/layout/prefix_hash.h"

namespace baton {

// KV blocks of sequences that were computed, by the names of the sequences' beginnings, so that the
// next sequence that begins alike need not compute them again. Owns one lease on each of its
// blocks, which are full, completely written, and never written again. Gives blocks back when the
// pool is short: those least recently used first, of a chain the last block first, and never one
// that anybody else holds. A worker actor owns one beside its pool and takes all its blocks through
// it; owner thread only.
//
// Whoever holds a share of a cached block holds shares of all blocks before it in the chain: that
// is why every idle block can be given back.
class PrefixCache {
 public:
  // `blocks_max` 0 switches it off: nothing is kept and nothing is found.
  PrefixCache(BlockPool& pool, uint32_t blocks_max) : pool_(pool), blocks_max_(blocks_max) {}
  ~PrefixCache() { clear(); }
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  bool enabled() const { return blocks_max_ > 0; }
  // Shares of the blocks for the longest cached beginning of `chain`, in order.
  std::vector<BlockLease> find(std::span<const PrefixHash> chain);
  // How many blocks find() would return now; changes nothing.
  size_t peek(std::span<const PrefixHash> chain) const;

  // Keeps blocks [from, chain.size()) of a sequence; blocks[i] belongs to chain[i], and those
  // before `from` were kept earlier. No step and no transfer may touch them. Where the chain is
  // here already, the caller's lease is exchanged for a share of the block that is here. Returns
  // whether that happened. Keeps less when the cache is full of blocks in use.
  bool keep(std::span<const PrefixHash> chain, std::span<BlockLease> blocks, size_t from = 0);

  // As BlockPool::take, but gives back as many idle blocks as that needs.
  std::vector<BlockLease> take(uint32_t count);
  // What take() can deliver.
  uint32_t available() const { return pool_.free() + pool_.kept_idle(); }
  uint32_t blocks() const { return static_cast<uint32_t>(entries_.size()); }
  bool contains(const PrefixHash& hash) const { return entries_.contains(hash); }
  uint64_t evicted() const { return evicted_; }
  // Forgets everything; blocks that nobody else holds go home.
  void clear();

 private:
  struct Entry {
    BlockLease block;
    PrefixHash parent;
    bool first = false;     // of its chain: it has no parent
    uint32_t children = 0;  // entries whose parent it is
    uint64_t used = 0;      // when it was last used, in uses
  };
  using Entries = std::unordered_map<PrefixHash, Entry>;

  void touch(const PrefixHash& hash, Entry& entry);
  bool evict_one();
  void erase(Entries::iterator entry);

  BlockPool& pool_;
  const uint32_t blocks_max_;
  Entries entries_;
  std::set<std::pair<uint64_t, PrefixHash>> leaves_;  // entries without children, by last use
  uint64_t uses_ = 0;
  uint64_t evicted_ = 0;
};

}  // namespace baton
