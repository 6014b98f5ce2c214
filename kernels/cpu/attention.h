#pragma once

#include "kernels/cpu/math.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"

// Attention over pages by numerics.md rule 6, one source for every ISA. A unit of work is up to
// kQueriesMax queries (neighbouring rows x query heads of one kv-head) that share each load of K
// and V. Rows of a unit end in the same tile of 64 keys, so that all of its queries see every
// earlier tile whole. Nothing a query computes depends on which others are in its unit.
namespace baton::BATON_ISA_NS {

inline constexpr int kKeyTile = 64;
inline constexpr int kSplit = 512;
inline constexpr int kGroupsMax = kKeyTile / kLanes;
inline constexpr int kQueriesMax = 16;
inline constexpr int kRowsMax = 8;

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
  int groups;  // with at least one key that somebody sees
};

// Element traits: kPairs says whether two values share a 32-bit lane.
struct ElementBf16 {
  static constexpr bool kPairs = true;
  static constexpr std::size_t kBytes = 2;
  BATON_INLINE static VF round(VF x) { return from_bf16(to_bf16(x)); }
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
static void score_part(const AttentionUnit& unit, const KvLayout& layout, const KeyTile& tile,
                       int query, int group) {
  VF acc[Q][G];
  for (int i = 0; i < Q; ++i) {
    for (int g = 0; g < G; ++g) acc[i][g] = zero();
  }
  const float* q = unit.q + static_cast<std::size_t>(query) * unit.stride;
  const std::size_t step = layout.block_tokens * E::kBytes * (E::kPairs ? 2 : 1);
  const std::byte* keys[G];
  for (int g = 0; g < G; ++g) keys[g] = tile.k[group + g];
  std::size_t offset = 0;
  if constexpr (E::kPairs) {
    for (std::size_t dim = 0; dim < layout.head_dim; dim += 2, offset += step) {
      for (int g = 0; g < G; ++g) {
        const VI pair = load_i(keys[g] + offset);
        const VF first = pair_first(pair);
        const VF second = pair_second(pair);
        for (int i = 0; i < Q; ++i) {
          const float* qi = q + static_cast<std::size_t>(i) * unit.stride + dim;
          acc[i][g] = fma(splat(qi[1]), second, fma(splat(qi[0]), first, acc[i][g]));
        }
      }
    }
  } else {
    for (std::size_t dim = 0; dim < layout.head_dim; ++dim, offset += step) {
      for (int g = 0; g < G; ++g) {
        const VF key = E::load(keys[g] + offset, kLanes);
        for (int i = 0; i < Q; ++i) {
          acc[i][g] =
              fma(splat(q[static_cast<std::size_t>(i) * unit.stride + dim]), key, acc[i][g]);
        }
      }
    }
  }
  for (int i = 0; i < Q; ++i) {
    for (int g = 0; g < G; ++g) {
      store(unit.scores + (query + i) * kKeyTile + (group + g) * kLanes, acc[i][g]);
    }
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

// Keys [begin, end) of the tile, ascending, times V, for Q queries and D groups of 16 dims from
// `dim` on; with kScale the accumulators are first multiplied by alpha. `lanes` of the last group.
template <class E, int Q, int D, bool kFull>
static void value_part(const AttentionUnit& unit, const KvLayout& layout, const KeyTile& tile,
                       int query, std::size_t dim, int lanes, int begin, int end, bool scale) {
  VF acc[Q][D];
  float* rows[Q];
  const float* p[Q];
  for (int i = 0; i < Q; ++i) {
    rows[i] = unit.acc + static_cast<std::size_t>(query + i) * unit.stride + dim;
    p[i] = unit.scores + (query + i) * kKeyTile;
    const VF alpha = splat(unit.alpha[query + i]);
    for (int d = 0; d < D; ++d) {
      acc[i][d] = load(rows[i] + d * kLanes);
      if (scale) acc[i][d] = mul(acc[i][d], alpha);
    }
  }
  const std::size_t step = layout.head_dim * E::kBytes * (E::kPairs ? 2 : 1);
  const std::size_t at = dim * E::kBytes * (E::kPairs ? 2 : 1);
  const auto one = [&](int t, auto&& value_of) {
    for (int d = 0; d < D; ++d) {
      const VF value = value_of(d);
      for (int i = 0; i < Q; ++i) acc[i][d] = fma(splat(p[i][t]), value, acc[i][d]);
    }
  };
  const auto pair_of = [&](const std::byte* row, int d) {
    return kFull ? load_i(row + d * 64) : load_i_part(row + d * 64, lanes);
  };
  int t = begin;
  if constexpr (E::kPairs) {
    const auto row_of = [&](int token) {
      return tile.v[token / kLanes] + static_cast<std::size_t>(token % kLanes / 2) * step + at;
    };
    if (t < end && t % 2 == 1) {
      const std::byte* row = row_of(t);
      one(t, [&](int d) { return pair_second(pair_of(row, d)); });
      ++t;
    }
    for (; t + 2 <= end; t += 2) {
      const std::byte* row = row_of(t);
      for (int d = 0; d < D; ++d) {
        const VI pair = pair_of(row, d);
        const VF first = pair_first(pair);
        const VF second = pair_second(pair);
        for (int i = 0; i < Q; ++i) {
          acc[i][d] = fma(splat(p[i][t + 1]), second, fma(splat(p[i][t]), first, acc[i][d]));
        }
      }
    }
    if (t < end) {
      const std::byte* row = row_of(t);
      one(t, [&](int d) { return pair_first(pair_of(row, d)); });
    }
  } else {
    for (; t < end; ++t) {
      const std::byte* row = tile.v[t / kLanes] + static_cast<std::size_t>(t % kLanes) * step + at;
      one(t, [&](int d) {
        return E::load(row + static_cast<std::size_t>(d) * kLanes * E::kBytes,
                       kFull ? kLanes : lanes);
      });
    }
  }
  for (int i = 0; i < Q; ++i) {
    for (int d = 0; d < D; ++d) store(rows[i] + d * kLanes, acc[i][d]);
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
static void softmax_step(AttentionUnit& unit, int groups) {
  alignas(64) float old_max[kQueriesMax] = {};
  alignas(64) float tile_sum[kQueriesMax];
  for (int i = 0; i < unit.queries; ++i) {
    float* s = unit.scores + i * kKeyTile;
    VF best = splat(-kInfinity);
    for (int g = 0; g < groups; ++g) {
      VF x = load(s + g * kLanes);
      const VI token = iadd(iota(), isplat(g * kLanes));
      x = select(ilt(token, isplat(unit.valid[i])), x, splat(-kInfinity));
      store(s + g * kLanes, x);
      best = vmax(best, x);
    }
    const float tile_max = lane_max_f(best);
    old_max[i] = unit.max[i];
    unit.max[i] = unit.max[i] > tile_max ? unit.max[i] : tile_max;
    const VF max = splat(unit.max[i]);
    VF sum = zero();
    for (int g = 0; g < groups; ++g) {
      const VF p = E::round(exp_v(sub(load(s + g * kLanes), max)));
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

static void begin_split(AttentionUnit& unit) {
  for (int i = 0; i < kQueriesMax; ++i) {
    unit.max[i] = -kInfinity;
    unit.sum[i] = 0;
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(unit.queries) * unit.stride; i += kLanes) {
    store(unit.acc + i, zero());
  }
}

// Adds the current split to the total: ascending order is the caller's.
static void merge_split(AttentionUnit& unit) {
  alignas(64) float new_max[kQueriesMax];
  alignas(64) float keep[kQueriesMax];
  alignas(64) float take[kQueriesMax];
  for (int i = 0; i < kQueriesMax; ++i) {
    new_max[i] = unit.total_max[i] > unit.max[i] ? unit.total_max[i] : unit.max[i];
  }
  store(keep, exp_v(sub(load(unit.total_max), load(new_max))));
  store(take, exp_v(sub(load(unit.max), load(new_max))));
  for (int i = 0; i < unit.queries; ++i) {
    unit.total_max[i] = new_max[i];
    unit.total_sum[i] = __builtin_fmaf(unit.total_sum[i], keep[i], unit.sum[i] * take[i]);
    for (std::size_t d = 0; d < unit.stride; d += kLanes) {
      const std::size_t at = static_cast<std::size_t>(i) * unit.stride + d;
      const VF part = mul(load(unit.acc + at), splat(take[i]));
      store(unit.total + at, fma(load(unit.total + at), splat(keep[i]), part));
    }
  }
}

BATON_INLINE KeyTile locate(const AttentionArgs& args, const KvRow& row, std::size_t kv_head,
                            int first, int keys, std::size_t element_bytes) {
  const KvLayout& layout = args.layout;
  const bool pairs = layout.element == KvElement::bf16;
  KeyTile tile;
  tile.groups = (keys + kLanes - 1) / kLanes;
  for (int g = 0; g < kGroupsMax; ++g) {
    const int used = g < tile.groups ? g : 0;  // pointers of unused groups stay valid
    const auto token = static_cast<std::size_t>(first + used * kLanes);
    const std::size_t inner = token % layout.block_tokens;
    const auto block = static_cast<std::size_t>(row.blocks[token / layout.block_tokens]);
    const std::byte* base = args.pool + block * layout.block_bytes();
    tile.k[g] =
        base + layout.k_offset(args.layer, kv_head) + inner * element_bytes * (pairs ? 2 : 1);
    tile.v[g] =
        base + layout.v_offset(args.layer, kv_head) + inner * layout.head_dim * element_bytes;
  }
  return tile;
}

// Rows [row, row + rows) x query heads [head, head + heads) of one kv-head.
template <class E>
static void attend_unit(const AttentionArgs& args, std::size_t row, int rows, std::size_t head,
                        int heads, std::size_t kv_head, AttentionUnit& unit) {
  const std::size_t dims = args.layout.head_dim;
  unit.queries = rows * heads;
  for (int i = 0; i < unit.queries; ++i) {
    const float* q = args.q + (row + static_cast<std::size_t>(i / heads)) * args.q_stride +
                     (head + static_cast<std::size_t>(i % heads)) * dims;
    float* scaled = unit.q + static_cast<std::size_t>(i) * unit.stride;
    float* total = unit.total + static_cast<std::size_t>(i) * unit.stride;
    for (std::size_t d = 0; d < unit.stride; d += kLanes) store(total + d, zero());
    each_lanes(dims, [&](std::size_t d, int n) {
      store_lanes(scaled + d, mul(load_lanes(q + d, n), splat(args.scale)), n);
    });
  }
  for (int i = 0; i < kQueriesMax; ++i) {
    unit.total_max[i] = -kInfinity;
    unit.total_sum[i] = 0;
  }
  const KvRow& last = args.rows[row + static_cast<std::size_t>(rows) - 1];
  for (int first = 0; first <= last.position; first += kKeyTile) {
    if (first % kSplit == 0) begin_split(unit);
    int most = 0;
    for (int i = 0; i < unit.queries; ++i) {
      const int seen = args.rows[row + static_cast<std::size_t>(i / heads)].position + 1 - first;
      unit.valid[i] = seen < kKeyTile ? seen : kKeyTile;
      most = most > unit.valid[i] ? most : unit.valid[i];
    }
    attend_tile<E>(unit, args.layout, locate(args, last, kv_head, first, most, E::kBytes));
    const int next = first + kKeyTile;
    if (next % kSplit == 0 || next > last.position) merge_split(unit);
  }
  for (int i = 0; i < unit.queries; ++i) {
    float* out = args.out + (row + static_cast<std::size_t>(i / heads)) * args.out_stride +
                 (head + static_cast<std::size_t>(i % heads)) * dims;
    const float* total = unit.total + static_cast<std::size_t>(i) * unit.stride;
    const VF sum = splat(unit.total_sum[i]);
    each_lanes(dims, [&](std::size_t d, int n) {
      store_lanes(out + d, div(load_lanes(total + d, n), sum), n);
    });
  }
}

// Rows from `row` on that may share a unit: same sequence, ascending, ending in the same tile.
BATON_INLINE int rows_together(const AttentionArgs& args, std::size_t row, std::size_t row_end,
                               int most) {
  const KvRow& first = args.rows[row];
  int n = 1;
  while (n < most && row + static_cast<std::size_t>(n) < row_end) {
    const KvRow& next = args.rows[row + static_cast<std::size_t>(n)];
    if (next.blocks != first.blocks || next.position != first.position + n ||
        next.position / kKeyTile != first.position / kKeyTile) {
      break;
    }
    ++n;
  }
  return n;
}

template <class E>
static void attend_rows(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
                        std::size_t head_begin, std::size_t head_end, AttentionUnit& unit) {
  const std::size_t group = args.heads / args.layout.kv_heads;
  for (std::size_t head = head_begin; head < head_end;) {
    const std::size_t kv_head = head / group;
    std::size_t stop = (kv_head + 1) * group;
    stop = stop < head_end ? stop : head_end;
    stop = stop - head < kQueriesMax ? stop : head + kQueriesMax;
    const int heads = static_cast<int>(stop - head);
    const int most = kQueriesMax / heads < kRowsMax ? kQueriesMax / heads : kRowsMax;
    for (std::size_t row = row_begin; row < row_end;) {
      const int rows = rows_together(args, row, row_end, most);
      attend_unit<E>(args, row, rows, head, heads, kv_head, unit);
      row += static_cast<std::size_t>(rows);
    }
    head = stop;
  }
}

static void attention(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
                      std::size_t head_begin, std::size_t head_end, std::byte* scratch) {
  AttentionUnit unit;
  unit.stride = (args.layout.head_dim + kLanes - 1) / kLanes * kLanes;
  unit.q = reinterpret_cast<float*>(scratch);
  unit.acc = unit.q + kQueriesMax * unit.stride;
  unit.total = unit.acc + kQueriesMax * unit.stride;
  unit.scores = unit.total + kQueriesMax * unit.stride;
  switch (args.layout.element) {
    case KvElement::f32:
      return attend_rows<ElementF32>(args, row_begin, row_end, head_begin, head_end, unit);
    case KvElement::bf16:
      return attend_rows<ElementBf16>(args, row_begin, row_end, head_begin, head_end, unit);
    case KvElement::f16:
      return attend_rows<ElementF16>(args, row_begin, row_end, head_begin, head_end, unit);
  }
}

}  // namespace baton::BATON_ISA_NS
