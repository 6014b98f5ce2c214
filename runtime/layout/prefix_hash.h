#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/fields.h"
#include "runtime/base/ids.h"

// Names of beginnings of sequences: a chain of hashes, one per full KV block, each over the one
// before it and the block's tokens. Equal names mean equal tokens from the start, computed alike.

namespace baton {

struct PrefixHash {
  uint64_t low = 0;
  uint64_t high = 0;
  friend auto operator<=>(const PrefixHash&, const PrefixHash&) = default;
  BATON_FIELDS(low, high)
};

// Who may share KV with whom: a chain starts at the root of its scope, so that chains of two scopes
// never meet.
struct PrefixScope {
  std::string tenant;
  std::string adapter;
  uint64_t weights_version = 0;
  // Of the instance that computes and of the one that keeps what was computed: where they differ,
  // so do bits.
  uint64_t source_numerics = 0;
  uint64_t target_numerics = 0;
  uint64_t secret = 0;  // of the cluster's start: names cannot be computed outside
};
PrefixHash prefix_root(const PrefixScope& scope);

// The name of `before` followed by one more block of tokens.
PrefixHash prefix_next(const PrefixHash& before, std::span<const TokenId> block);

// Names of all full blocks of `tokens`, in order.
std::vector<PrefixHash> prefix_chain(const PrefixHash& root, std::span<const TokenId> tokens,
                                     uint32_t block_tokens);

}  // namespace baton

template <>
struct std::hash<baton::PrefixHash> {
  size_t operator()(const baton::PrefixHash& hash) const noexcept { return hash.low; }
};
