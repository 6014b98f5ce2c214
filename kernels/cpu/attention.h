#pragma once

#include "kernels/cpu/attention_tile.h"
#include "kernels/ops.h"

// Attention over pages by numerics.md rule 6, one source for every ISA. A unit of work is up to
// kQueriesMax queries (neighbouring rows x query heads of one kv-head) that share each load of K
// and V. Rows of a unit end in the same tile of 64 keys, so that all of its queries see every
// earlier tile whole. Nothing a query computes depends on which others are in its unit.
namespace baton::BATON_ISA_NS {

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

// Block of a token of a row's sequence, and the token's place in it.
struct Place {
  const std::byte* block;
  std::size_t token;
};
BATON_INLINE Place place_of(const AttentionArgs& args, const KvRow& row, int token) {
  const int shift = __builtin_ctz(args.layout.block_tokens);
  const auto block = static_cast<std::size_t>(row.blocks[token >> shift]);
  return {args.pool + block * args.layout.block_bytes(),
          static_cast<std::size_t>(token) & (args.layout.block_tokens - 1)};
}

// Keys and values of the 16-token group that starts at a token.
struct GroupPlace {
  const std::byte* k;
  const std::byte* v;
};
BATON_INLINE GroupPlace group_at(const AttentionArgs& args, const KvRow& row, std::size_t kv_head,
                                 int token) {
  const KvLayout& layout = args.layout;
  const std::size_t bytes = kv_element_bytes(layout.element);
  const Place at = place_of(args, row, token);
  return {
      at.block + layout.k_offset(args.layer, kv_head) + layout.k_index(at.token, 0) * bytes,
      at.block + layout.v_offset(args.layer, kv_head) + layout.v_index(at.token, 0) * bytes,
  };
}

// The tile of `keys` keys from `first` on, and where what is read after it lies: the next tile of
// the row or, behind the last, the first one of the caller's next call.
template <class E>
BATON_INLINE KeyTile locate(const AttentionArgs& args, const KvRow& row, std::size_t kv_head,
                            int first, int keys) {
  KeyTile tile;
  tile.groups = (keys + kLanes - 1) / kLanes;
  const bool last = first + kKeyTile > row.position;
  const KvRow* next_row = last ? args.next_row : &row;
  const std::size_t next_head = last ? args.next_kv_head : kv_head;
  const int next = last ? 0 : first + kKeyTile;
  for (int g = 0; g < kGroupsMax; ++g) {
    const int used = g < tile.groups ? g : 0;  // pointers of unused groups stay valid
    const GroupPlace at = group_at(args, row, kv_head, first + used * kLanes);
    tile.k[g] = at.k;
    tile.v[g] = at.v;
    tile.k_ahead[g] = 0;
    tile.v_ahead[g] = 0;
    const int token = next + g * kLanes;
    if (next_row == nullptr || token > next_row->position) continue;
    const GroupPlace then = group_at(args, *next_row, next_head, token);
    if (g < tile.groups) {
      tile.k_ahead[g] = then.k - at.k;
      tile.v_ahead[g] = then.v - at.v;
    } else {
      ask_for_group<E>(args.layout, then.k, then.v);
    }
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
    float* total = unit.total + static_cast<std::size_t>(i) * unit.stride;
    for (std::size_t d = 0; d < unit.stride; d += kLanes) store(total + d, zero());
    for (std::size_t d = 0; d < dims; ++d) {
      unit.q[d * kQueriesMax + static_cast<std::size_t>(i)] = q[d] * args.scale;
    }
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
    attend_tile<E>(unit, args.layout, locate<E>(args, last, kv_head, first, most));
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
  const std::size_t group = args.group > 0 ? args.group : args.heads / args.layout.kv_heads;
  for (std::size_t head = head_begin; head < head_end;) {
    const std::size_t kv_head = (args.skipped + head) / group;
    std::size_t stop = (kv_head + 1) * group - args.skipped;
    stop = stop < head_end ? stop : head_end;
    stop = stop - head < kQueriesMax ? stop : head + kQueriesMax;
    const int heads = static_cast<int>(stop - head);
    const int most = heads < kQueriesTogether ? kQueriesTogether / heads : 1;
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
