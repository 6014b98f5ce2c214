#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/base/ids.h"

namespace baton {

// The merges of a BPE vocabulary, by pair of token ids. Immutable once filled, then thread-safe.
class MergeTable {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFFu;

  struct Merge {
    std::uint32_t rank = kNone;  // smaller merges first
    TokenId result = -1;
  };

  explicit MergeTable(std::size_t merges_max);

  // False if the pair is there already (the first one counts). Precondition: ids are not negative
  // and at most `merges_max` pairs are added.
  bool add(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const;

 private:
  struct Entry {
    std::uint64_t key = 0;  // left + 1 in the high half, so that 0 means free
    Merge merge;
  };

  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Entry> entries_;  // open addressing, at most half full
  std::size_t mask_;
};

// Merges one piece after another; owns the working memory that pieces share. One per thread.
//
// The lowest rank merges first, the leftmost of equals: O(n log n) for a piece of n symbols.
class BpeMerger {
 public:
  explicit BpeMerger(const MergeTable& merges) : merges_(merges) {}

  // Replaces `symbols` by what remains when no pair can merge any more.
  void merge(std::vector<TokenId>& symbols);

 private:
  struct Node {
    TokenId id;          // -1: merged into its left neighbour
    std::uint32_t rank;  // of the pair (this, next)
    std::uint32_t previous;
    std::uint32_t next;
  };

  void rate(std::uint32_t at);  // computes the rank of a pair and queues it

  const MergeTable& merges_;
  std::vector<Node> nodes_;
  std::vector<std::uint64_t> heap_;  // rank in the high half, position in the low half
};

}  // namespace baton
