#pragma once

#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include "kernels/formats.h"
#include "kernels/kv_layout.h"
#include "runtime/base/hash.h"
#include "runtime/base/ids.h"
#include "runtime/layout/packing.h"
#include "tests/unit/layout/random_placement.h"

namespace baton::test {

// The raw bits of an element of another type, converted as kv_write would: the oracle of plans.
inline uint32_t convert_raw(KvDtype from, KvDtype to, uint32_t raw) {
  if (from == to) return raw;
  float value = 0;
  switch (from) {
    case KvDtype::f32: std::memcpy(&value, &raw, 4); break;
    case KvDtype::bf16: value = bf16_to_f32(static_cast<uint16_t>(raw)); break;
    case KvDtype::f16: value = f16_to_f32(static_cast<uint16_t>(raw)); break;
  }
  switch (to) {
    case KvDtype::f32: std::memcpy(&raw, &value, 4); return raw;
    case KvDtype::bf16: return f32_to_bf16(value);
    case KvDtype::f16: return f32_to_f16(value);
  }
  return 0;
}

// A value that a step could have stored, different for every element of a model and token.
inline uint32_t stored_raw(KvDtype dtype, uint32_t layer, bool value, uint32_t head, uint32_t token,
                           uint32_t dim) {
  const uint64_t name =
      (((uint64_t{layer} * 2 + (value ? 1 : 0)) * 64 + head) * 4096 + token) * 64 + dim;
  auto bits = static_cast<uint32_t>(mix64(name));
  if ((bits & 0x7f800000u) == 0x7f800000u || (bits & 0x7f800000u) == 0) bits ^= 0x40000000u;
  return convert_raw(KvDtype::f32, dtype, bits);
}

// The pools of all ranks of an instance with one block table, by nothing but kernels/kv_layout.h.
struct KvInstance {
  static constexpr uint8_t kUntouched = 0xEE;

  Placement placement;
  std::vector<BlockId> table;
  std::vector<std::vector<std::byte>> pools;
  uint32_t blocks = 0;

  // Blocks of the table are zero, three spare ones have a pattern; the order is random.
  static KvInstance make(const Placement& placement, uint32_t tokens, PlacementMaker& random) {
    KvInstance out;
    out.placement = placement;
    const uint32_t used = (tokens + placement.block_tokens - 1) / placement.block_tokens;
    out.blocks = used + 3;
    for (uint32_t i = 0; i < out.blocks; ++i) out.table.push_back({i});
    for (uint32_t i = out.blocks - 1; i > 0; --i) {
      std::swap(out.table[i], out.table[random.roll(0, i)]);
    }
    out.table.resize(used);
    for (uint32_t rank = 0; rank < placement.ranks.size(); ++rank) {
      out.pools.emplace_back(out.blocks * placement.geometry(rank).block_bytes(),
                             std::byte{kUntouched});
      for (BlockId block : out.table) {
        const std::span<std::byte> bytes = out.bytes(rank, block);
        std::memset(bytes.data(), 0, bytes.size());
      }
    }
    return out;
  }

  KvLayout layout(uint32_t rank) const {
    const KvGeometry g = placement.geometry(rank);
    return {g.layers, g.kv_heads, g.head_dim, g.block_tokens, static_cast<KvElement>(g.dtype)};
  }
  std::span<std::byte> bytes(uint32_t rank, BlockId block) {
    const size_t size = placement.geometry(rank).block_bytes();
    return std::span(pools[rank]).subspan(block.value * size, size);
  }
  // An element by its place in the model; null if the rank does not own it.
  std::byte* element(uint32_t rank, uint32_t layer, bool value, uint32_t head, uint32_t token,
                     uint32_t dim) {
    const Box& box = placement.ranks[rank];
    if (!box.layers.contains(layer) || !box.heads.contains(head)) return nullptr;
    const KvLayout l = layout(rank);
    const size_t at = token % l.block_tokens;
    const size_t part = value ? l.v_offset(layer - box.layers.begin, head - box.heads.begin)
                              : l.k_offset(layer - box.layers.begin, head - box.heads.begin);
    const size_t index = value ? l.v_index(at, dim) : l.k_index(at, dim);
    return bytes(rank, table[token / l.block_tokens]).data() + part +
           index * kv_element_bytes(l.element);
  }
  // Calls visit(element, layer, value, head, token, dim) for all that is in the blocks of the
  // table, on every rank that owns it.
  template <class Visit>
  void each(const Visit& visit) {
    const auto tokens = static_cast<uint32_t>(table.size()) * placement.block_tokens;
    for (uint32_t rank = 0; rank < placement.ranks.size(); ++rank) {
      const Box& box = placement.ranks[rank];
      for (uint32_t layer = box.layers.begin; layer < box.layers.end; ++layer) {
        for (uint32_t head = box.heads.begin; head < box.heads.end; ++head) {
          for (uint32_t token = 0; token < tokens; ++token) {
            for (uint32_t dim = 0; dim < placement.shape.head_dim; ++dim) {
              for (bool value : {false, true}) {
                visit(element(rank, layer, value, head, token, dim), layer, value, head, token,
                      dim);
              }
            }
          }
        }
      }
    }
  }
  // What a prefill would have left in the blocks of the first `tokens` positions.
  void fill(uint32_t tokens) {
    each([&](std::byte* at, uint32_t layer, bool value, uint32_t head, uint32_t token,
             uint32_t dim) {
      const uint32_t raw = stored_raw(placement.dtype, layer, value, head, token, dim);
      if (token < tokens) std::memcpy(at, &raw, dtype_bytes(placement.dtype));
    });
  }
};

// Elements of an instance's table that are not what `source_dtype` at the source becomes here, and
// those outside [from_token, tokens) that are not zero.
inline int wrong_elements(KvInstance& target, KvDtype source_dtype, uint32_t from_token,
                          uint32_t tokens) {
  int wrong = 0;
  const size_t bytes = dtype_bytes(target.placement.dtype);
  target.each([&](const std::byte* at, uint32_t layer, bool value, uint32_t head, uint32_t token,
                  uint32_t dim) {
    const bool brought = token >= from_token && token < tokens;
    const uint32_t expected =
        brought ? convert_raw(source_dtype, target.placement.dtype,
                              stored_raw(source_dtype, layer, value, head, token, dim))
                : 0;
    if (std::memcmp(at, &expected, bytes) != 0) ++wrong;
  });
  return wrong;
}

inline std::vector<const std::byte*> source_pointers(const RoutedPlan& routed,
                                                     const TransferPiece& piece, uint32_t tokens,
                                                     KvInstance& source) {
  const Range range = source_blocks_of(routed, piece, tokens);
  std::vector<const std::byte*> pointers;
  for (uint32_t i = range.begin; i < range.end; ++i) {
    pointers.push_back(
        source.bytes(routed.routes[piece.route].source_rank, source.table[i]).data());
  }
  return pointers;
}

}  // namespace baton::test
