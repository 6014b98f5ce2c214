#pragma once

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/math.h"
#include "kernels/ops.h"

// Reductions over a row of logits, in tiles of 1,024 (numerics.md rule 4).
namespace baton::BATON_ISA_NS {

// Lanes from n on become `filler`.
BATON_INLINE VF fill_from(VF x, int n, float filler) {
  return n == kLanes ? x : select(ilt(iota(), isplat(n)), x, splat(filler));
}
BATON_INLINE VocabTile vocab_tile(const float* x, std::size_t n, std::int32_t first_id) {
  VF best = splat(-kInfinity);
  unsigned bad = 0;
  each_lanes(n, [&](std::size_t i, int m) {
    const VF v = load_lanes(x + i, m);
    bad |= mask_bits(unordered(sub(v, v)));  // infinities and NaN
    best = vmax(best, fill_from(v, m, -kInfinity));
  });
  if (bad != 0) {
    const float nan = __builtin_nanf("");
    return {nan, nan, first_id};
  }
  const float max = tree_max(best);
  VocabTile tile{max, 0, -1};
  VF sum = zero();
  each_lanes(n, [&](std::size_t i, int m) {
    const VF v = load_lanes(x + i, m);
    sum = add(sum, fill_from(exp_v(sub(v, splat(max))), m, 0.0f));
    if (tile.argmax < 0) {
      const unsigned hits = mask_bits(eq(v, splat(max))) & ((1u << m) - 1u);
      if (hits != 0) tile.argmax = first_id + static_cast<std::int32_t>(i) + __builtin_ctz(hits);
    }
  });
  tile.sum = tree_sum(sum);
  return tile;
}

static void vocab_tiles(const float* logits, std::size_t n, std::size_t tile_begin,
                        std::size_t tile_end, VocabTile* stats) {
  for (std::size_t t = tile_begin; t < tile_end; ++t) {
    const std::size_t first = t * kVocabTile;
    const std::size_t count = n - first < kVocabTile ? n - first : kVocabTile;
    stats[t] = vocab_tile(logits + first, count, static_cast<std::int32_t>(first));
  }
}

// a comes after b among the best: smaller, or equal with a higher id. NaN counts as -inf.
BATON_INLINE float rank_value(const float* x, std::int32_t id) {
  return x[id] == x[id] ? x[id] : -kInfinity;
}
BATON_INLINE bool worse(const float* x, std::int32_t a, std::int32_t b) {
  const float va = rank_value(x, a);
  const float vb = rank_value(x, b);
  return va < vb || (va == vb && a > b);
}
// Restores the heap (worst id on top) below `at`.
static void sift_down(const float* x, std::int32_t* heap, std::size_t count, std::size_t at) {
  const std::int32_t id = heap[at];
  while (true) {
    std::size_t child = 2 * at + 1;
    if (child >= count) break;
    if (child + 1 < count && worse(x, heap[child + 1], heap[child])) ++child;
    if (!worse(x, heap[child], id)) break;
    heap[at] = heap[child];
    at = child;
  }
  heap[at] = id;
}

static std::size_t top_k(const float* x, std::size_t n, std::size_t k, std::int32_t* ids) {
  const std::size_t count = k < n ? k : n;
  if (count == 0) return 0;
  for (std::size_t i = 0; i < count; ++i) ids[i] = static_cast<std::int32_t>(i);
  for (std::size_t i = count / 2; i-- > 0;) sift_down(x, ids, count, i);
  float threshold = rank_value(x, ids[0]);
  each_lanes(n - count, [&](std::size_t i, int m) {
    const VF v = load_lanes(x + count + i, m);
    unsigned hits = mask_bits(lt(splat(threshold), v)) & ((1u << m) - 1u);
    for (; hits != 0; hits &= hits - 1) {
      const auto id = static_cast<std::int32_t>(count + i) + __builtin_ctz(hits);
      if (!(x[id] > threshold)) continue;
      ids[0] = id;
      sift_down(x, ids, count, 0);
      threshold = rank_value(x, ids[0]);
    }
  });
  for (std::size_t left = count; left > 1; --left) {  // worst to the back
    const std::int32_t worst = ids[0];
    ids[0] = ids[left - 1];
    ids[left - 1] = worst;
    sift_down(x, ids, left - 1, 0);
  }
  return count;
}

}  // namespace baton::BATON_ISA_NS
