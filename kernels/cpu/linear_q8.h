#pragma once

#include <cstddef>

#include "kernels/cpu/ahead.h"
#include "kernels/ops.h"

// The int8 linear layer of each instruction set (Ops::linear_q8); written by hand per set, since
// here the choice of instructions is the point.
namespace baton {

#define BATON_DECLARE_LINEAR_Q8(isa)                                                         \
  namespace isa {                                                                            \
  void linear_q8(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,            \
                 std::size_t tile_begin, std::size_t tile_end, std::byte* scratch) noexcept; \
  }
BATON_DECLARE_LINEAR_Q8(scalar)
BATON_DECLARE_LINEAR_Q8(avx2)
BATON_DECLARE_LINEAR_Q8(avx512)
#undef BATON_DECLARE_LINEAR_Q8

// Bytes of one block of 32 columns of one tile (packed.h).
inline constexpr std::size_t kTileBlockQ40 = 256 + 32;
inline constexpr std::size_t kTileBlockQ41 = 256 + 64;
inline constexpr std::size_t kTileBlockQ80 = 512 + 32;

}  // namespace baton
