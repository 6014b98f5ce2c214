#include "runtime/model/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr std::uint32_t kEnd = 0xFFFFFFFFu;  // no neighbour

std::uint64_t key_of(TokenId left, TokenId right) {
  return (static_cast<std::uint64_t>(left) + 1) << 32 | static_cast<std::uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(std::size_t merges_max)
    : entries_(std::bit_ceil(std::max<std::size_t>(merges_max, 8) * 2)),
      mask_(entries_.size() - 1) {}

// Where the key is, or the free slot where it would be.
std::size_t MergeTable::slot_of(std::uint64_t key) const {
  std::uint64_t hash = key * 0x9E3779B97F4A7C15u;
  hash ^= hash >> 32;
  std::size_t slot = hash & mask_;
  while (entries_[slot].key != 0 && entries_[slot].key != key) slot = (slot + 1) & mask_;
  return slot;
}

bool MergeTable::add(TokenId left, TokenId right, Merge merge) {
  CHECK(left >= 0 && right >= 0);
  Entry& entry = entries_[slot_of(key_of(left, right))];
  if (entry.key != 0) return false;
  entry = Entry{key_of(left, right), merge};
  return true;
}

MergeTable::Merge MergeTable::find(TokenId left, TokenId right) const {
  return entries_[slot_of(key_of(left, right))].merge;
}

void BpeMerger::rate(std::uint32_t at) {
  Node& node = nodes_[at];
  node.rank =
      node.next == kEnd ? MergeTable::kNone : merges_.find(node.id, nodes_[node.next].id).rank;
}

void BpeMerger::merge(std::vector<TokenId>& symbols) {
  if (symbols.size() < 2) return;
  CHECK(symbols.size() < kEnd);
  const auto count = static_cast<std::uint32_t>(symbols.size());
  nodes_.resize(count);
  heap_.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    nodes_[i] = Node{symbols[i], MergeTable::kNone, i - 1, i + 1 == count ? kEnd : i + 1};
  }
  const auto queue = [this](std::uint32_t at) {
    return static_cast<std::uint64_t>(nodes_[at].rank) << 32 | at;
  };
  for (std::uint32_t i = 0; i + 1 < count; ++i) {
    rate(i);
    if (nodes_[i].rank != MergeTable::kNone) heap_.push_back(queue(i));
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  const auto rerate = [&](std::uint32_t at) {
    const std::uint32_t before = nodes_[at].rank;
    rate(at);
    // A pair of the same rank as before has its entry in the heap already.
    if (nodes_[at].rank == MergeTable::kNone || nodes_[at].rank == before) return;
    heap_.push_back(queue(at));
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  };
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const std::uint64_t best = heap_.back();
    heap_.pop_back();
    const auto at = static_cast<std::uint32_t>(best);
    Node& node = nodes_[at];
    if (node.id < 0 || node.rank != best >> 32) continue;  // the pair has changed since
    Node& right = nodes_[node.next];
    node.id = merges_.find(node.id, right.id).result;
    right.id = -1;
    node.next = right.next;
    if (node.next != kEnd) nodes_[node.next].previous = at;
    rerate(at);
    if (at != 0) rerate(node.previous);
  }
  symbols.clear();
  for (std::uint32_t at = 0; at != kEnd; at = nodes_[at].next) symbols.push_back(nodes_[at].id);
}

}  // namespace baton
