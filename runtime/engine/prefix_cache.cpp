#include "runtime/engine/prefix_cache.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {

size_t PrefixCache::peek(std::span<const PrefixHash> chain) const {
  size_t found = 0;
  while (found < chain.size() && entries_.contains(chain[found])) ++found;
  return found;
}

std::vector<BlockLease> PrefixCache::find(std::span<const PrefixHash> chain) {
  const auto here = chain.first(peek(chain));
  std::vector<BlockLease> blocks;
  blocks.reserve(here.size());
  for (const PrefixHash& hash : here) {
    Entry& entry = entries_.at(hash);
    blocks.push_back(entry.block.share());
    touch(hash, entry);
  }
  return blocks;
}

void PrefixCache::touch(const PrefixHash& hash, Entry& entry) {
  if (entry.children == 0) leaves_.erase({entry.used, hash});
  entry.used = ++uses_;
  if (entry.children == 0) leaves_.emplace(entry.used, hash);
}

bool PrefixCache::keep(std::span<const PrefixHash> chain, std::span<BlockLease> blocks,
                       size_t from) {
  CHECK(blocks.size() >= chain.size());
  if (!enabled() || from >= chain.size()) return false;
  if (from > 0) {
    const auto parent = entries_.find(chain[from - 1]);
    if (parent == entries_.end()) return false;
    // It came here by another sequence meanwhile: this one has to hold the same blocks before it.
    if (parent->second.block.id() != blocks[from - 1].id()) from = 0;
  }
  bool exchanged = false;
  for (size_t i = from; i < chain.size(); ++i) {
    if (const auto known = entries_.find(chain[i]); known != entries_.end()) {
      touch(chain[i], known->second);
      if (known->second.block.id() == blocks[i].id()) continue;
      blocks[i] = known->second.block.share();
      exchanged = true;
      continue;
    }
    // A block has one name: under another one it is not kept again.
    if (pool_.kept(blocks[i].id())) break;
    if (entries_.size() >= blocks_max_ && !evict_one()) break;
    Entry entry;
    entry.block = blocks[i].share();
    entry.first = i == 0;
    if (i > 0) {
      entry.parent = chain[i - 1];
      Entry& parent = entries_.at(entry.parent);
      if (parent.children++ == 0) leaves_.erase({parent.used, entry.parent});
    }
    entry.used = ++uses_;
    leaves_.emplace(entry.used, chain[i]);
    pool_.set_kept(entry.block.id(), true);
    entries_.emplace(chain[i], std::move(entry));
  }
  return exchanged;
}

std::vector<BlockLease> PrefixCache::take(uint32_t count) {
  if (count > available()) return {};
  while (pool_.free() < count) CHECK_MSG(evict_one(), "an idle block stands before one in use");
  return pool_.take(count);
}

// The least recently used block that nobody else holds and that no other one follows.
bool PrefixCache::evict_one() {
  const auto victim = std::find_if(leaves_.begin(), leaves_.end(), [this](const auto& leaf) {
    return pool_.references(entries_.at(leaf.second).block.id()) == 1;
  });
  if (victim == leaves_.end()) return false;
  erase(entries_.find(victim->second));
  ++evicted_;
  return true;
}

void PrefixCache::erase(Entries::iterator place) {
  const Entry& entry = place->second;
  CHECK(entry.children == 0);
  leaves_.erase({entry.used, place->first});
  if (!entry.first) {
    Entry& parent = entries_.at(entry.parent);
    // A block was used whenever one behind it was.
    parent.used = std::max(parent.used, entry.used);
    if (--parent.children == 0) leaves_.emplace(parent.used, entry.parent);
  }
  pool_.set_kept(entry.block.id(), false);
  entries_.erase(place);
}

void PrefixCache::clear() {
  while (!leaves_.empty()) erase(entries_.find(leaves_.begin()->second));
  CHECK(entries_.empty());
}

}  // namespace baton
