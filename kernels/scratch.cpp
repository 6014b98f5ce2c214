#include "kernels/ops.h"

namespace baton {

// The largest need of any instruction set: two tiles of widened int8 weights, or four buffers of 32
// x 16 widened floats (linear_f32).
std::size_t linear_scratch_bytes(std::size_t cols) noexcept {
  constexpr std::size_t kWideBlockBytes = 8 * 64 + 2 * 64;
  constexpr std::size_t kF32Bytes = 4 * 32 * kTileRows * sizeof(float);
  const std::size_t wide = (cols + kQuantBlock - 1) / kQuantBlock * 2 * kWideBlockBytes;
  return wide < kF32Bytes ? kF32Bytes : wide;
}

// Sixteen queries, however they are grouped: scaled q, split and total accumulators, and scores of
// one tile.
std::size_t attention_scratch_bytes(std::size_t, std::size_t, std::size_t head_dim) noexcept {
  const std::size_t padded = (head_dim + 15) / 16 * 16;
  return 16 * (3 * padded + 64) * sizeof(float);
}

}  // namespace baton
