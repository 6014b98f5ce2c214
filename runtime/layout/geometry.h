#pragma once

#include <cstdint>

#include "runtime/base/fields.h"

namespace baton {

enum class KvDtype : uint8_t { f32 = 0, bf16 = 1, f16 = 2 };
constexpr bool enum_valid(KvDtype d) {
  return d <= KvDtype::f16;
}
constexpr uint32_t dtype_bytes(KvDtype d) {
  return d == KvDtype::f32 ? 4 : 2;
}
const char* dtype_name(KvDtype dtype) noexcept;

// Order of the elements within one (layer, k or v, head) of a block. The CPU has one, the same for
// every instruction set; kernels/kv_layout.h defines it.
enum class InnerLayout : uint8_t { cpu_pairs = 0 };
constexpr bool enum_valid(InnerLayout l) {
  return l <= InnerLayout::cpu_pairs;
}

// Shape of one rank's KV store: block-major, [block][layer][k, v][head][token][dim], with the
// innermost two axes in `inner` order. layers and heads are those that this rank owns.
struct KvGeometry {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t block_tokens = 16;  // 16, 32 or 64
  KvDtype dtype = KvDtype::bf16;
  InnerLayout inner = InnerLayout::cpu_pairs;
  BATON_FIELDS(layers, kv_heads, head_dim, block_tokens, dtype, inner)

  uint64_t block_bytes() const {
    return uint64_t{layers} * 2 * kv_heads * block_tokens * head_dim * dtype_bytes(dtype);
  }
  uint32_t blocks_for(uint64_t tokens) const {
    return static_cast<uint32_t>((tokens + block_tokens - 1) / block_tokens);
  }
  friend bool operator==(const KvGeometry&, const KvGeometry&) = default;
};

}  // namespace baton
