#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/layout/box.h"
#include "runtime/layout/geometry.h"

namespace baton {

// Which rank of one instance owns which part of the KV cache. ranks[i] is the part of the
// instance's i-th rank; heads may be owned by several (replicated). The stored form (dtype, block
// size, inner layout) is one for the whole instance. Plain data: says nothing of rank numbers in
// the cluster, so that instances of one kind share their plans.
struct Placement {
  KvShape shape;
  KvDtype dtype = KvDtype::bf16;
  uint32_t block_tokens = 16;
  InnerLayout inner = InnerLayout::cpu_pairs;
  std::vector<Box> ranks;
  BATON_FIELDS(shape, dtype, block_tokens, inner, ranks)

  // Shape of the store of one rank.
  KvGeometry geometry(uint32_t rank) const;
  // Bytes of a block on the rank whose blocks are largest.
  uint64_t block_bytes_max() const;
  friend bool operator==(const Placement&, const Placement&) = default;
};

struct PlacementOptions {
  KvShape shape;
  uint32_t query_heads = 0;
  uint32_t tensor_parallel = 1;
  uint32_t pipeline_parallel = 1;
  KvDtype dtype = KvDtype::bf16;
  uint32_t block_tokens = 16;
  InnerLayout inner = InnerLayout::cpu_pairs;
};

// Rank p * tensor_parallel + r owns the layers [floor(L p / P), floor(L (p+1) / P)) and the
// kv-heads that cover the query heads [floor(H r / T), floor(H (r+1) / T)): any degree up to the
// number of query heads works, 9 heads on 2, 4 or 8 ranks included.
Result<Placement> make_placement(const PlacementOptions& options);

// The placement of an instance of one rank, from its geometry.
Placement single_rank_placement(const KvGeometry& geometry);

// Of a placement that make_placement made: how many different layer ranges it has, and ranks of
// each.
struct Degrees {
  uint32_t tensor_parallel = 1;
  uint32_t pipeline_parallel = 1;
};
Degrees degrees_of(const Placement& placement);

// The query heads of tensor-parallel rank `rank` of `ranks`.
Range query_heads_of(uint32_t query_heads, uint32_t ranks, uint32_t rank);

// Fails with invalid_argument and a sentence unless every element is owned by at least one rank,
// every part lies within the shape and the stored form is one that exists.
Result<void> check_placement(const Placement& placement);

}  // namespace baton
