#include "runtime/layout/placement.h"

#include <algorithm>
#include <string>

#include "runtime/base/check.h"

namespace baton {
namespace {

uint32_t split_point(uint32_t count, uint32_t part, uint32_t parts) {
  return static_cast<uint32_t>(uint64_t{count} * part / parts);
}

std::string text_of(const Range& range) {
  return "[" + std::to_string(range.begin) + ", " + std::to_string(range.end) + ")";
}

Error invalid(std::string text) {
  return Error{ErrorCode::invalid_argument, std::move(text)};
}

Result<void> check_form(const Placement& p) {
  if (p.shape.layers == 0 || p.shape.kv_heads == 0 || p.shape.head_dim == 0) {
    return invalid("a KV placement needs at least one layer, kv-head and dimension, got " +
                   std::to_string(p.shape.layers) + " x " + std::to_string(p.shape.kv_heads) +
                   " x " + std::to_string(p.shape.head_dim));
  }
  if (p.shape.head_dim % 2 != 0) {
    return invalid("head dimension " + std::to_string(p.shape.head_dim) +
                   " is odd; the KV layout pairs dimensions");
  }
  if (p.block_tokens != 16 && p.block_tokens != 32 && p.block_tokens != 64) {
    return invalid("blocks of " + std::to_string(p.block_tokens) +
                   " tokens do not exist; use 16, 32 or 64");
  }
  if (!enum_valid(p.dtype) || !enum_valid(p.inner)) {
    return invalid("unknown KV dtype or inner layout (" +
                   std::to_string(static_cast<int>(p.dtype)) + ", " +
                   std::to_string(static_cast<int>(p.inner)) +
                   "): run the same version of Baton on every rank");
  }
  return {};
}

// The first head of `layer` that nobody owns, or kv_heads.
uint32_t first_unowned_head(const Placement& p, uint32_t layer) {
  uint32_t head = 0;
  for (bool moved = true; moved && head < p.shape.kv_heads;) {
    moved = false;
    for (const Box& box : p.ranks) {
      if (box.layers.contains(layer) && box.heads.contains(head)) {
        head = box.heads.end;
        moved = true;
      }
    }
  }
  return head;
}

}  // namespace

uint64_t Placement::block_bytes_max() const {
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
    most = std::max(most, geometry(rank).block_bytes());
  }
  return most;
}

KvGeometry Placement::geometry(uint32_t rank) const {
  CHECK(rank < ranks.size());
  KvGeometry out;
  out.layers = ranks[rank].layers.size();
  out.kv_heads = ranks[rank].heads.size();
  out.head_dim = shape.head_dim;
  out.block_tokens = block_tokens;
  out.dtype = dtype;
  out.inner = inner;
  return out;
}

Degrees degrees_of(const Placement& placement) {
  uint32_t stages = 0;
  for (size_t i = 0; i < placement.ranks.size(); ++i) {
    if (i == 0 || placement.ranks[i].layers != placement.ranks[i - 1].layers) ++stages;
  }
  if (stages == 0) return {};
  return {static_cast<uint32_t>(placement.ranks.size()) / stages, stages};
}

Range query_heads_of(uint32_t query_heads, uint32_t ranks, uint32_t rank) {
  CHECK(rank < ranks);
  return Range{split_point(query_heads, rank, ranks), split_point(query_heads, rank + 1, ranks)};
}

Result<Placement> make_placement(const PlacementOptions& o) {
  if (o.shape.kv_heads == 0 || o.query_heads % o.shape.kv_heads != 0) {
    return invalid(std::to_string(o.query_heads) + " query heads cannot share " +
                   std::to_string(o.shape.kv_heads) + " kv-heads evenly");
  }
  if (o.tensor_parallel == 0 || o.tensor_parallel > o.query_heads) {
    return invalid("tensor-parallel degree " + std::to_string(o.tensor_parallel) +
                   " is outside 1 to the " + std::to_string(o.query_heads) +
                   " query heads of the model");
  }
  if (o.pipeline_parallel == 0 || o.pipeline_parallel > o.shape.layers) {
    return invalid("pipeline-parallel degree " + std::to_string(o.pipeline_parallel) +
                   " is outside 1 to the " + std::to_string(o.shape.layers) +
                   " layers of the model");
  }
  Placement p{o.shape, o.dtype, o.block_tokens, o.inner, {}};
  const uint32_t group = o.query_heads / o.shape.kv_heads;
  for (uint32_t stage = 0; stage < o.pipeline_parallel; ++stage) {
    const Range layers{split_point(o.shape.layers, stage, o.pipeline_parallel),
                       split_point(o.shape.layers, stage + 1, o.pipeline_parallel)};
    for (uint32_t rank = 0; rank < o.tensor_parallel; ++rank) {
      const Range queries = query_heads_of(o.query_heads, o.tensor_parallel, rank);
      p.ranks.push_back(Box{layers, {queries.begin / group, (queries.end + group - 1) / group}});
    }
  }
  if (Result<void> checked = check_placement(p); !checked.ok()) return checked.error();
  return p;
}

Placement single_rank_placement(const KvGeometry& g) {
  Placement p;
  p.shape = KvShape{g.layers, g.kv_heads, g.head_dim};
  p.dtype = g.dtype;
  p.block_tokens = g.block_tokens;
  p.inner = g.inner;
  p.ranks.push_back(Box{{0, g.layers}, {0, g.kv_heads}});
  return p;
}

Result<void> check_placement(const Placement& p) {
  if (Result<void> form = check_form(p); !form.ok()) return form;
  for (size_t i = 0; i < p.ranks.size(); ++i) {
    const Box& box = p.ranks[i];
    const bool inside = Range{0, p.shape.layers}.contains(box.layers) &&
                        Range{0, p.shape.kv_heads}.contains(box.heads);
    if (box.empty() || !inside) {
      return invalid("rank " + std::to_string(i) + " of the instance owns layers " +
                     text_of(box.layers) + " and kv-heads " + text_of(box.heads) +
                     ", which is not a part of " + std::to_string(p.shape.layers) + " layers x " +
                     std::to_string(p.shape.kv_heads) + " kv-heads");
    }
  }
  for (uint32_t layer = 0; layer < p.shape.layers; ++layer) {
    if (const uint32_t head = first_unowned_head(p, layer); head < p.shape.kv_heads) {
      return invalid("no rank of the instance owns kv-head " + std::to_string(head) + " of layer " +
                     std::to_string(layer));
    }
  }
  return {};
}

}  // namespace baton
