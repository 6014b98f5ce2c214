#pragma once

#include <cstddef>

#include "kernels/isa.h"
#include "kernels/kv_layout.h"

namespace baton {

// One (layer, k or v, head) of a request in two stores: a stretch of tokens in a block of each.
// head_dim is the same on both sides; block_tokens and element may differ. Tokens are within their
// blocks and multiples of 16.
struct KvRepack {
  KvLayout source;
  KvLayout target;
  std::size_t source_token = 0;
  std::size_t target_token = 0;
  std::size_t tokens = 0;
  bool is_key = true;
};

// Writes the stretch's elements of the target's inner part from those of the source's. Another
// element type rounds to nearest even, as kv_write does (formats.h); the same one copies bits.
void kv_repack(const KvRepack& what, const std::byte* source_inner,
               std::byte* target_inner) noexcept;
// By one instruction set, for tests and benchmarks; the machine must have it.
void kv_repack_by(Isa isa, const KvRepack& what, const std::byte* source_inner,
                  std::byte* target_inner) noexcept;

}  // namespace baton
