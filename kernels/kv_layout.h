#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/inline.h"

namespace baton {

// Element type of the KV store; the numbers equal those of the runtime's KvDtype.
enum class KvElement : std::uint8_t { f32 = 0, bf16 = 1, f16 = 2 };

BATON_INLINE constexpr std::size_t kv_element_bytes(KvElement e) {
  return e == KvElement::f32 ? 4 : 2;
}

// Shape of a block-major KV store, [block][layer][k, v][kv_head][inner], and the order of the
// elements within one (layer, k or v, kv_head), the "inner" part:
//
//   bf16:      K [dim/2][token][2]     V [token/2][dim][2]   two per 32-bit lane, one mask each
//   f32, f16:  K [dim][token]          V [token][dim]        a lane widens in one load
//
// K's lanes are tokens and V's are dims, so that neither needs a horizontal sum. An inner part is
// block_tokens * head_dim elements, a multiple of 64 bytes. head_dim is even; block_tokens is 16,
// 32 or 64. Elements of tokens that were never written are zero (the pool sees to it).
struct KvLayout {
  std::uint32_t layers = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t block_tokens = 16;
  KvElement element = KvElement::bf16;

  BATON_INLINE constexpr std::size_t head_bytes() const {
    return std::size_t{block_tokens} * head_dim * kv_element_bytes(element);
  }
  BATON_INLINE constexpr std::size_t block_bytes() const {
    return std::size_t{layers} * 2 * kv_heads * head_bytes();
  }
  // Byte offsets within a block of the inner part of a layer and head.
  BATON_INLINE constexpr std::size_t k_offset(std::size_t layer, std::size_t head) const {
    return ((layer * 2 + 0) * kv_heads + head) * head_bytes();
  }
  BATON_INLINE constexpr std::size_t v_offset(std::size_t layer, std::size_t head) const {
    return ((layer * 2 + 1) * kv_heads + head) * head_bytes();
  }
  // Element (not byte) index within the inner part. token is within the block.
  BATON_INLINE constexpr std::size_t k_index(std::size_t token, std::size_t dim) const {
    return element == KvElement::bf16 ? ((dim / 2) * block_tokens + token) * 2 + dim % 2
                                      : dim * block_tokens + token;
  }
  BATON_INLINE constexpr std::size_t v_index(std::size_t token, std::size_t dim) const {
    return element == KvElement::bf16 ? ((token / 2) * head_dim + dim) * 2 + token % 2
                                      : token * head_dim + dim;
  }
};

}  // namespace baton
