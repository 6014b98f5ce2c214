#pragma once

#include "kernels/cpu/math.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"

// One step of attention (attention.h): a unit's queries against one tile of 64 keys.
namespace baton::BATON_ISA_NS {

inline constexpr int kKeyTile = 64;
inline constexpr int kSplit = 512;
inline constexpr int kGroupsMax = kKeyTile / kLanes;
inline constexpr int kQueriesMax = 16;
inline constexpr int kQueriesTogether = 12;  // aimed at: twice the widest register tile

// One unit. Arrays of (query, dim) have `stride` floats a query, a multiple of 16.
struct AttentionUnit {
  int queries = 0;
  std::size_t stride = 0;
  float* q = nullptr;           // scaled queries
  float* acc = nullptr;         // of the current split
  float* total = nullptr;       // of the splits so far
  float* scores = nullptr;      // (query, 64): scores, then rounded probabilities
  int valid[kQueriesMax] = {};  // keys of the current tile that a query sees
  float max[kQueriesMax] = {};  // of the current split
  float sum[kQueriesMax] = {};
  float total_max[kQueriesMax] = {};
  float total_sum[kQueriesMax] = {};
  float alpha[kQueriesMax] = {};
};

// Where the 16-token groups of the current tile are.
struct KeyTile {
  const std::byte* k[kGroupsMax];  // first token of the group, dim 0
  const std::byte* v[kGroupsMax];
  int groups;            // with at least one key that somebody sees
  std::ptrdiff_t ahead;  // bytes from a place in this tile to what is worth prefetching; may be 0
};

// Element traits: kPairs says whether two values share a 32-bit lane.
struct ElementBf16 {
  static constexpr bool kPairs = true;
  static constexpr std::size_t kBytes = 2;
  // Probabilities: never negative or subnormal.
  BATON_INLINE static VF round(VF x) {
    const VI bits = bits_of(x);
    const VI odd = iand(shr<16>(bits), isplat(1));
    const VI rounded =
        iand(iadd(bits, iadd(odd, isplat(0x7fff))), isplat(static_cast<std::int32_t>(0xffff0000u)));
    return select(unordered(x), x, from_bits(rounded));
  }
};
struct ElementF16 {
  static constexpr bool kPairs = false;
  static constexpr std::size_t kBytes = 2;
  BATON_INLINE static VF load(const std::byte* p, int n) {
    const auto* h = reinterpret_cast<const std::uint16_t*>(p);
    return n == kLanes ? from_f16(h) : from_f16_part(h, n);
  }
  BATON_INLINE static VF round(VF x) { return round_f16(x); }
};
struct ElementF32 {
  static constexpr bool kPairs = false;
  static constexpr std::size_t kBytes = 4;
  BATON_INLINE static VF load(const std::byte* p, int n) {
    return load_lanes(reinterpret_cast<const float*>(p), n);
  }
  BATON_INLINE static VF round(VF x) { return x; }
};

BATON_INLINE VF pair_first(VI pair) {
  return from_bits(shl<16>(pair));
}
BATON_INLINE VF pair_second(VI pair) {
  return from_bits(iand(pair, isplat(static_cast<std::int32_t>(0xffff0000u))));
}

// Scores of Q queries from `query` on against G groups of 16 keys from `group` on.
template <class E, int Q, int G>
[[gnu::noinline]] static void score_part(const AttentionUnit& unit, const KvLayout& layout,
                                         const KeyTile& tile, int query, int group) {
  VF acc[Q][G];
  const std::byte* keys[G];
#pragma GCC unroll 4
  for (int g = 0; g < G; ++g) {
    keys[g] = tile.k[group + g];
#pragma GCC unroll 6
    for (int i = 0; i < Q; ++i) acc[i][g] = zero();
  }
  const float* q = unit.q + query;
  const std::ptrdiff_t ahead = tile.ahead;
  const std::size_t step = layout.block_tokens * E::kBytes * (E::kPairs ? 2 : 1);
  for (std::size_t dim = 0; dim < layout.head_dim; dim += E::kPairs ? 2 : 1) {
    BATON_KEEP_POINTER(q);
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      __builtin_prefetch(keys[g] + ahead);
      if constexpr (kAccumulators < 12) BATON_KEEP_POINTER(q);  // broadcast again: registers
      if constexpr (E::kPairs) {
        const VI pair = load_i(keys[g]);
        const VF first = pair_first(pair);
#pragma GCC unroll 6
        for (int i = 0; i < Q; ++i) acc[i][g] = fma(splat(q[i]), first, acc[i][g]);
        const VF second = pair_second(pair);
#pragma GCC unroll 6
        for (int i = 0; i < Q; ++i) {
          acc[i][g] = fma(splat(q[kQueriesMax + i]), second, acc[i][g]);
        }
      } else {
        const VF key = E::load(keys[g], kLanes);
#pragma GCC unroll 6
        for (int i = 0; i < Q; ++i) acc[i][g] = fma(splat(q[i]), key, acc[i][g]);
      }
      keys[g] += step;
    }
    q += kQueriesMax * (E::kPairs ? 2 : 1);
  }
  float* scores = unit.scores + query * kKeyTile + group * kLanes;
#pragma GCC unroll 6
  for (int i = 0; i < Q; ++i) {
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) store(scores + i * kKeyTile + g * kLanes, acc[i][g]);
  }
}

template <class E, int Q, int G>
BATON_INLINE void score_groups(const AttentionUnit& unit, const KvLayout& layout,
                               const KeyTile& tile, int query) {
  int group = 0;
  for (; group + G <= tile.groups; group += G) {
    score_part<E, Q, G>(unit, layout, tile, query, group);
  }
  if constexpr (G > 1) {
    for (; group < tile.groups; ++group) score_part<E, Q, 1>(unit, layout, tile, query, group);
  }
}

// The value vectors of one token (or pair of them), D groups of 16 dims; the last may be shorter.
template <class E, bool kFull>
BATON_INLINE VF value_at(const std::byte* v, int d, int lanes, bool second) {
  if constexpr (E::kPairs) {
    const VI pair = kFull ? load_i(v + d * 64) : load_i_part(v + d * 64, lanes);
    return second ? pair_second(pair) : pair_first(pair);
  } else {
    return E::load(v + static_cast<std::size_t>(d) * kLanes * E::kBytes, kFull ? kLanes : lanes);
  }
}

// Keys [begin, end) of the tile, ascending, times V, for Q queries and D groups of 16 dims from
// `dim` on; the accumulators are first multiplied by alpha if `scale`.
template <class E, int Q, int D, bool kFull>
[[gnu::noinline]] static void value_part(const AttentionUnit& unit, const KvLayout& layout,
                                         const KeyTile& tile, int query, std::size_t dim, int lanes,
                                         int begin, int end, bool scale) {
  VF acc[Q][D];
  float* sums = unit.acc + static_cast<std::size_t>(query) * unit.stride + dim;
#pragma GCC unroll 6
  for (int i = 0; i < Q; ++i) {
    const VF factor = splat(scale ? unit.alpha[query + i] : 1.0f);
    const float* row = sums + static_cast<std::size_t>(i) * unit.stride;
#pragma GCC unroll 4
    for (int d = 0; d < D; ++d) acc[i][d] = mul(load(row + d * kLanes), factor);
  }
  constexpr int kTogether = E::kPairs ? 2 : 1;  // tokens of one vector of V
  const std::size_t step = layout.head_dim * E::kBytes * kTogether;
  const std::ptrdiff_t ahead = tile.ahead;
  const auto add_token = [&](const std::byte* v, const float* p, bool second) {
#pragma GCC unroll 4
    for (int d = 0; d < D; ++d) {
      const VF value = value_at<E, kFull>(v, d, lanes, second);
      if constexpr (kAccumulators < 12) BATON_KEEP_POINTER(p);  // broadcast again: registers
#pragma GCC unroll 6
      for (int i = 0; i < Q; ++i) acc[i][d] = fma(splat(p[i * kKeyTile]), value, acc[i][d]);
    }
  };
  for (int t = begin; t < end;) {
    const int in_group = t % kLanes;
    const std::byte* v = tile.v[t / kLanes] +
                         static_cast<std::size_t>(in_group / kTogether) * step +
                         dim * E::kBytes * kTogether;
    const float* p = unit.scores + query * kKeyTile + t;
    if (t % kTogether != 0 || t + kTogether > end) {  // half a pair
      add_token(v, p, t % kTogether != 0);
      ++t;
      continue;
    }
    const int group_end = t - in_group + kLanes;
    const int stop = group_end < end ? group_end : end;
    for (; t + kTogether <= stop; t += kTogether, v += step, p += kTogether) {
      BATON_KEEP_POINTER(v);
      BATON_KEEP_POINTER(p);
      for (std::size_t line = 0; line < D * kLanes * E::kBytes * kTogether; line += 64) {
        __builtin_prefetch(v + ahead + line);
      }
      add_token(v, p, false);
      if constexpr (E::kPairs) add_token(v, p + 1, true);
    }
  }
#pragma GCC unroll 6
  for (int i = 0; i < Q; ++i) {
    float* row = sums + static_cast<std::size_t>(i) * unit.stride;
#pragma GCC unroll 4
    for (int d = 0; d < D; ++d) store(row + d * kLanes, acc[i][d]);
  }
}

template <class E, int Q, int D>
BATON_INLINE void value_dims(const AttentionUnit& unit, const KvLayout& layout, const KeyTile& tile,
                             int query, int begin, int end, bool scale) {
  std::size_t dim = 0;
  for (; dim + D * kLanes <= layout.head_dim; dim += D * kLanes) {
    value_part<E, Q, D, true>(unit, layout, tile, query, dim, kLanes, begin, end, scale);
  }
  if constexpr (D > 1) {
    for (; dim + kLanes <= layout.head_dim; dim += kLanes) {
      value_part<E, Q, 1, true>(unit, layout, tile, query, dim, kLanes, begin, end, scale);
    }
  }
  if (dim < layout.head_dim) {
    const int lanes = static_cast<int>(layout.head_dim - dim);
    value_part<E, Q, 1, false>(unit, layout, tile, query, dim, lanes, begin, end, scale);
  }
}

// How many queries and vectors go together: as many accumulators as there are registers.
template <int Q>
inline constexpr int kVectors = kAccumulators / Q >= 4   ? 4
                                : kAccumulators / Q >= 2 ? 2
                                                         : 1;
inline constexpr int kQueriesWide = kAccumulators >= 12 ? 6 : kAccumulators >= 8 ? 4 : 6;

// Runs body<Q>(first query) over all queries in chunks.
template <class Body>
BATON_INLINE void each_queries(int queries, const Body& body) {
  int query = 0;
  const auto take = [&]<int Q>() {
    for (; query + Q <= queries; query += Q) body.template operator()<Q>(query);
  };
  take.template operator()<kQueriesWide>();
  take.template operator()<4>();
  take.template operator()<3>();
  take.template operator()<2>();
  take.template operator()<1>();
}

// Softmax step of all queries: scores become rounded probabilities; max, sum, alpha move on.
template <class E>
[[gnu::noinline]] static void softmax_step(AttentionUnit& unit, int groups) {
  alignas(64) float old_max[kQueriesMax] = {};
  alignas(64) float tile_sum[kQueriesMax];
  for (int i = 0; i < unit.queries; ++i) {
    float* s = unit.scores + i * kKeyTile;
    VF best = splat(-kInfinity);
    for (int g = 0; g < groups; ++g) {
      VF x = load(s + g * kLanes);
      const int seen = unit.valid[i] - g * kLanes;
      if (seen < kLanes) {
        x = select(ilt(iota(), isplat(seen)), x, splat(-kInfinity));
        store(s + g * kLanes, x);
      }
      best = vmax(best, x);
    }
    const float tile_max = tree_max(best);
    old_max[i] = unit.max[i];
    unit.max[i] = unit.max[i] > tile_max ? unit.max[i] : tile_max;
    const VF max = splat(unit.max[i]);
    VF sum = zero();
    for (int g = 0; g < groups; ++g) {
      const VF p = E::round(exp_nonpositive(sub(load(s + g * kLanes), max)));
      store(s + g * kLanes, p);
      sum = add(sum, p);
    }
    tile_sum[i] = tree_sum(sum);
  }
  store(unit.alpha, exp_v(sub(load(old_max), load(unit.max))));
  for (int i = 0; i < unit.queries; ++i) {
    unit.sum[i] = __builtin_fmaf(unit.sum[i], unit.alpha[i], tile_sum[i]);
  }
}

template <class E>
static void attend_tile(AttentionUnit& unit, const KvLayout& layout, const KeyTile& tile) {
  each_queries(unit.queries, [&]<int Q>(int query) {
    score_groups<E, Q, kVectors<Q>>(unit, layout, tile, query);
  });
  softmax_step<E>(unit, tile.groups);
  int shared = kKeyTile;  // keys that all queries see
  for (int i = 0; i < unit.queries; ++i) {
    shared = shared < unit.valid[i] ? shared : unit.valid[i];
  }
  each_queries(unit.queries, [&]<int Q>(int query) {
    value_dims<E, Q, kVectors<Q>>(unit, layout, tile, query, 0, shared, true);
  });
  for (int i = 0; i < unit.queries; ++i) {
    if (unit.valid[i] == shared) continue;
    value_dims<E, 1, kVectors<1>>(unit, layout, tile, i, shared, unit.valid[i], false);
  }
}

}  // namespace baton::BATON_ISA_NS
