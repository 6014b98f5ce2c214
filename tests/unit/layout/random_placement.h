#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "runtime/layout/placement.h"

namespace baton::test {

// Random sound placements: regular ones (tensor and pipeline parallel) and irregular ones (bands of
// layers, overlapping ranges of heads, ranks in any order).
class PlacementMaker {
 public:
  explicit PlacementMaker(uint64_t seed) : random_(seed) {}

  uint32_t roll(uint32_t low, uint32_t high) {
    return low + static_cast<uint32_t>(random_() % (high - low + 1));
  }

  KvShape shape() { return KvShape{roll(1, 5), roll(1, 6), 2 * roll(1, 2)}; }

  Placement placement(const KvShape& shape, KvDtype dtype) {
    Placement p = roll(0, 1) == 0 ? regular(shape) : irregular(shape);
    p.dtype = dtype;
    p.block_tokens = 16u << roll(0, 2);
    return p;
  }

 private:
  Placement regular(const KvShape& shape) {
    PlacementOptions o;
    o.shape = shape;
    o.query_heads = shape.kv_heads * roll(1, 4);
    o.tensor_parallel = roll(1, std::min(o.query_heads, 8u));
    o.pipeline_parallel = roll(1, shape.layers);
    return *make_placement(o);
  }

  std::vector<Range> cut(uint32_t size) {
    std::vector<Range> out;
    for (uint32_t at = 0; at < size;) {
      const uint32_t end = roll(at + 1, size);
      out.push_back({at, end});
      at = end;
    }
    return out;
  }

  Placement irregular(const KvShape& shape) {
    Placement p;
    p.shape = shape;
    for (const Range& layers : cut(shape.layers)) {
      for (Range heads : cut(shape.kv_heads)) {
        heads.begin = roll(0, heads.begin);
        heads.end = roll(heads.end, shape.kv_heads);
        for (uint32_t copies = roll(0, 3) == 0 ? 2 : 1; copies > 0; --copies) {
          p.ranks.push_back({layers, heads});
        }
      }
    }
    std::shuffle(p.ranks.begin(), p.ranks.end(), random_);
    return p;
  }

  std::mt19937_64 random_;
};

}  // namespace baton::test
