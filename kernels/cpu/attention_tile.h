#pragma once

#include "kernels/cpu/ahead.h"
#include "kernels/cpu/math.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"

// One step of attention (attention.h): a unit's queries against one tile of 64 keys.
namespace baton::BATON_ISA_NS {

inline constexpr int kKeyTile = 64;
inline constexpr int kSplit = 512;
inline constexpr int kGroupsMax = kKeyTile / kLanes;
static_assert(kGroupsMax == 4);
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
  int groups;  // with at least one key that somebody sees
  // Bytes from a place in a group to the same in what is read next; may be 0.
  std::ptrdiff_t k_ahead[kGroupsMax];
  std::ptrdiff_t v_ahead[kGroupsMax];
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

// Bytes between the keys of one dim (or pair) and those of the next.
template <class E>
BATON_INLINE std::size_t key_step(const KvLayout& layout) {
  return layout.block_tokens * E::kBytes * (E::kPairs ? 2 : 1);
}

// Asks for the 16 keys and values of a group.
template <class E>
BATON_INLINE void ask_for_group(const KvLayout& layout, const std::byte* k, const std::byte* v) {
  for (std::size_t dim = 0; dim < layout.head_dim; dim += E::kPairs ? 2 : 1) {
    ask_for(k);
    k += key_step<E>(layout);
  }
  const std::size_t bytes = layout.head_dim * E::kBytes * kLanes;
  for (std::size_t at = 0; at < bytes; at += 64) ask_for(v + at);
}

// Scores of Q queries from `query` on against G groups of 16 keys from `group` on.
template <class E, int Q, int G>
[[gnu::noinline]] static void score_part(const AttentionUnit& unit, const KvLayout& layout,
                                         const KeyTile& tile, int query, int group) {
  VF acc[Q][G];
  const std::byte* keys[G];
  std::ptrdiff_t ahead[G];
  each<G>([&](auto g) BATON_INLINE_LAMBDA {
    keys[g] = tile.k[group + g];
    ahead[g] = tile.k_ahead[group + g];
    each<Q>([&](auto i) BATON_INLINE_LAMBDA { acc[i][g] = zero(); });
  });
  const float* q = unit.q + query;
  const std::size_t step = key_step<E>(layout);
  // One broadcast serves all groups, and needs one register.
  const auto add_dim = [&](const VF(&key)[G], const float* of_dim) BATON_INLINE_LAMBDA {
    each<Q>([&](auto i) BATON_INLINE_LAMBDA {
      const VF one = splat(of_dim[i]);
      each<G>([&](auto g) BATON_INLINE_LAMBDA { acc[i][g] = fma(one, key[g], acc[i][g]); });
    });
  };
  for (std::size_t dim = 0; dim < layout.head_dim; dim += E::kPairs ? 2 : 1) {
    BATON_KEEP_POINTER(q);
    VF key[G];
    if constexpr (E::kPairs) {
      each<G>([&](auto g) BATON_INLINE_LAMBDA {
        ask_for(keys[g] + ahead[g]);
        key[g] = pair_first(load_i(keys[g]));
      });
      add_dim(key, q);
      each<G>([&](auto g) BATON_INLINE_LAMBDA { key[g] = pair_second(load_i(keys[g])); });
      add_dim(key, q + kQueriesMax);
    } else {
      each<G>([&](auto g) BATON_INLINE_LAMBDA {
        ask_for(keys[g] + ahead[g]);
        key[g] = E::load(keys[g], kLanes);
      });
      add_dim(key, q);
    }
    each<G>([&](auto g) BATON_INLINE_LAMBDA { keys[g] += step; });
    q += kQueriesMax * (E::kPairs ? 2 : 1);
  }
  float* scores = unit.scores + query * kKeyTile + group * kLanes;
  each<Q>([&](auto i) BATON_INLINE_LAMBDA {
    each<G>([&](auto g)
                BATON_INLINE_LAMBDA { store(scores + i * kKeyTile + g * kLanes, acc[i][g]); });
  });
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
  each<Q>([&](auto i) BATON_INLINE_LAMBDA {
    const VF factor = splat(scale ? unit.alpha[query + i] : 1.0f);
    const float* row = sums + static_cast<std::size_t>(i) * unit.stride;
    each<D>([&](auto d) BATON_INLINE_LAMBDA { acc[i][d] = mul(load(row + d * kLanes), factor); });
  });
  constexpr int kTogether = E::kPairs ? 2 : 1;  // tokens of one vector of V
  const std::size_t step = layout.head_dim * E::kBytes * kTogether;
  const auto add_token = [&](const std::byte* v, const float* p, bool second) BATON_INLINE_LAMBDA {
    VF value[D];
    each<D>([&](auto d)
                BATON_INLINE_LAMBDA { value[d] = value_at<E, kFull>(v, d, lanes, second); });
    each<Q>([&](auto i) BATON_INLINE_LAMBDA {
      const VF one = splat(p[i * kKeyTile]);
      each<D>([&](auto d) BATON_INLINE_LAMBDA { acc[i][d] = fma(one, value[d], acc[i][d]); });
    });
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
    const std::ptrdiff_t ahead = tile.v_ahead[t / kLanes];
    const int group_end = t - in_group + kLanes;
    const int stop = group_end < end ? group_end : end;
    for (; t + kTogether <= stop; t += kTogether, v += step, p += kTogether) {
      BATON_KEEP_POINTER(v);
      BATON_KEEP_POINTER(p);
      for (std::size_t line = 0; line < D * kLanes * E::kBytes * kTogether; line += 64) {
        ask_for(v + ahead + line);
      }
      add_token(v, p, false);
      if constexpr (E::kPairs) add_token(v, p + 1, true);
    }
  }
  each<Q>([&](auto i) BATON_INLINE_LAMBDA {
    float* row = sums + static_cast<std::size_t>(i) * unit.stride;
    each<D>([&](auto d) BATON_INLINE_LAMBDA { store(row + d * kLanes, acc[i][d]); });
  });
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
inline constexpr int kQueriesWide = kAccumulators >= 24 ? 12 : kAccumulators >= 6 ? 6 : 4;

// Runs body<Q>(first query) over all queries in chunks.
template <class Body>
BATON_INLINE void each_queries(int queries, const Body& body) {
  int query = 0;
  const auto take = [&]<int Q>() {
    for (; query + Q <= queries; query += Q) body.template operator()<Q>(query);
  };
  take.template operator()<kQueriesWide>();
  if constexpr (kQueriesWide > 6) take.template operator()<6>();
  take.template operator()<4>();
  take.template operator()<3>();
  take.template operator()<2>();
  take.template operator()<1>();
}

// The largest score of a query over G groups of keys, of which it sees the first `seen`; the others
// become -inf.
template <int G>
BATON_INLINE float largest_score(float* s, int seen) {
  if (seen < G * kLanes) {
    for (int g = 0; g < G; ++g) {
      const VM sees = ilt(iota(), isplat(seen - g * kLanes));
      store(s + g * kLanes, select(sees, load(s + g * kLanes), splat(-kInfinity)));
    }
  }
  VF best = splat(-kInfinity);
  each<G>([&](auto g) BATON_INLINE_LAMBDA { best = vmax(best, load(s + g * kLanes)); });
  return tree_max(best);
}

// Scores of Q neighbouring queries become rounded probabilities; their sums go to `sums`.
template <class E, int Q, int G>
BATON_INLINE void probabilities(float* s, const float* max, float* sums) {
  VF x[Q * G];
  each<Q * G>([&](auto i) BATON_INLINE_LAMBDA {
    x[i] = sub(load(s + i / G * kKeyTile + i % G * kLanes), splat(max[i / G]));
  });
  exp_nonpositive_all<Q * G>(x);
  each<Q * G>([&](auto i) BATON_INLINE_LAMBDA {
    x[i] = E::round(x[i]);
    store(s + i / G * kKeyTile + i % G * kLanes, x[i]);
  });
  each<Q>([&](auto i) BATON_INLINE_LAMBDA {
    VF sum = zero();
    each<G>([&](auto g) BATON_INLINE_LAMBDA { sum = add(sum, x[i * G + g]); });
    sums[i] = tree_sum(sum);
  });
}

// Softmax step of all queries: scores become rounded probabilities; max, sum, alpha move on.
template <class E, int G>
[[gnu::noinline]] static void softmax_groups(AttentionUnit& unit) {
  alignas(64) float old_max[kQueriesMax] = {};
  alignas(64) float tile_sum[kQueriesMax];
  for (int i = 0; i < unit.queries; ++i) {
    old_max[i] = unit.max[i];
    const float tile_max = largest_score<G>(unit.scores + i * kKeyTile, unit.valid[i]);
    unit.max[i] = unit.max[i] > tile_max ? unit.max[i] : tile_max;
  }
  int i = 0;
  for (; i + 2 <= unit.queries; i += 2) {
    probabilities<E, 2, G>(unit.scores + i * kKeyTile, unit.max + i, tile_sum + i);
  }
  if (i < unit.queries) {
    probabilities<E, 1, G>(unit.scores + i * kKeyTile, unit.max + i, tile_sum + i);
  }
  store(unit.alpha, exp_v(sub(load(old_max), load(unit.max))));
  for (i = 0; i < unit.queries; ++i) {
    unit.sum[i] = __builtin_fmaf(unit.sum[i], unit.alpha[i], tile_sum[i]);
  }
}

template <class E>
BATON_INLINE void softmax_step(AttentionUnit& unit, int groups) {
  switch (groups) {
    case 1: return softmax_groups<E, 1>(unit);
    case 2: return softmax_groups<E, 2>(unit);
    case 3: return softmax_groups<E, 3>(unit);
    default: return softmax_groups<E, 4>(unit);
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
