#pragma once

#include "kernels/cpu/vec.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

// Linear layers with f32 activations (numerics.md rule 3): lanes are outputs, columns ascend, one
// fma each. Weights are widened block by block into a small buffer, 32 columns x 16 rows.
namespace baton::BATON_ISA_NS {

inline constexpr std::size_t kWidenCols = 32;
inline constexpr std::size_t kWidenFloats = kWidenCols * kTileRows;

BATON_INLINE void widen_nibbles(const std::byte* block, bool has_min, float* w) {
  const auto* scales = reinterpret_cast<const std::uint16_t*>(block + 256);
  const VF d = from_f16(scales);
  const VF m = has_min ? from_f16(scales + kTileRows) : zero();
  const VI low_half = isplat(15);
  for (int v = 0; v < 4; ++v) {
    const VI bytes = load_i(block + v * 64);  // lane = row, byte j = columns 4v + j, 16 + 4v + j
    for (int j = 0; j < 8; ++j) {
      const int col = (j & 1) * 16 + 4 * v + j / 2;
      const VI q = iand(shr_by(bytes, 4 * j), low_half);
      const VF value = has_min ? add(mul(d, to_float(q)), m) : mul(d, to_float(isub(q, isplat(8))));
      store(w + col * kTileRows, value);
    }
  }
}

BATON_INLINE void widen_bytes(const std::byte* block, float* w) {
  const VF d = from_f16(reinterpret_cast<const std::uint16_t*>(block + 512));
  for (int v = 0; v < 8; ++v) {
    const VI bytes = load_i(block + v * 64);
    for (int j = 0; j < 4; ++j) {
      const VI q = isub(iand(shr_by(bytes, 8 * j), isplat(255)), isplat(128));
      store(w + (4 * v + j) * kTileRows, mul(d, to_float(q)));
    }
  }
}

// Columns [col, col + n) of a tile, n <= 32; returns where they are: w, or the tile itself.
BATON_INLINE const float* widen(DType type, const std::byte* tile, std::size_t col, std::size_t n,
                                float* w) {
  switch (type) {
    case DType::f32: return reinterpret_cast<const float*>(tile) + col * kTileRows;
    case DType::f16:
      for (std::size_t k = 0; k < n; ++k) {
        const auto* p = reinterpret_cast<const std::uint16_t*>(tile) + (col + k) * kTileRows;
        store(w + k * kTileRows, from_f16(p));
      }
      return w;
    case DType::bf16:
      for (std::size_t k = 0; k < n; ++k) {
        const auto* p = reinterpret_cast<const std::uint16_t*>(tile) + (col + k) * kTileRows;
        store(w + k * kTileRows, from_bf16(load_u16(p)));
      }
      return w;
    case DType::q4_0: widen_nibbles(tile + col / kQuantBlock * 288, false, w); return w;
    case DType::q4_1: widen_nibbles(tile + col / kQuantBlock * 320, true, w); return w;
    case DType::q8_0: widen_bytes(tile + col / kQuantBlock * 544, w); return w;
  }
  return w;
}

// Adds to what is there, or overwrites; the last tile may have fewer than 16 outputs.
BATON_INLINE void store_outputs(const LinearOut& out, std::size_t row, std::size_t first,
                                std::size_t outputs, VF value) {
  float* p = out.data + row * out.stride + first;
  const std::size_t left = outputs - first;
  if (left >= kTileRows) {
    store(p, out.add ? add(load(p), value) : value);
    return;
  }
  const int n = static_cast<int>(left);
  store_part(p, out.add ? add(load_part(p, n), value) : value, n);
}

// R rows of activations x T tiles of weights.
template <int R, int T>
static void linear_f32_part(const PackedMatrix& w, std::size_t tile_bytes, const float* x,
                            std::size_t x_stride, std::size_t row, const LinearOut& out,
                            std::size_t tile, float* buffer) {
  VF acc[T][R];
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) acc[t][r] = zero();
  }
  for (std::size_t col = 0; col < w.cols; col += kWidenCols) {
    const std::size_t n = w.cols - col < kWidenCols ? w.cols - col : kWidenCols;
    const float* widened[T];
    for (int t = 0; t < T; ++t) {
      widened[t] = widen(w.type, w.data + (tile + static_cast<std::size_t>(t)) * tile_bytes, col, n,
                         buffer + static_cast<std::size_t>(t) * kWidenFloats);
    }
    for (std::size_t k = 0; k < n; ++k) {
      for (int t = 0; t < T; ++t) {
        const VF wk = load(widened[t] + k * kTileRows);
        for (int r = 0; r < R; ++r) {
          const float* xr = x + (row + static_cast<std::size_t>(r)) * x_stride;
          acc[t][r] = fma(wk, splat(xr[col + k]), acc[t][r]);
        }
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    for (int r = 0; r < R; ++r) {
      store_outputs(out, row + static_cast<std::size_t>(r),
                    (tile + static_cast<std::size_t>(t)) * kTileRows, w.rows, acc[t][r]);
    }
  }
}

inline constexpr int kF32Rows = kAccumulators >= 8 ? 8 : 6;

static void linear_f32(const PackedMatrix& w, const float* x, std::size_t x_stride,
                       std::size_t rows, const LinearOut& out, std::size_t tile_begin,
                       std::size_t tile_end, std::byte* scratch) {
  const std::size_t tile_bytes = packed_tile_bytes(w.type, w.cols);
  auto* buffer = reinterpret_cast<float*>(scratch);
  std::size_t tile = tile_begin;
  if (rows == 1) {  // more chains at a time
    for (; tile + 4 <= tile_end; tile += 4) {
      linear_f32_part<1, 4>(w, tile_bytes, x, x_stride, 0, out, tile, buffer);
    }
  }
  for (; tile < tile_end; ++tile) {
    std::size_t row = 0;
    for (; row + kF32Rows <= rows; row += kF32Rows) {
      linear_f32_part<kF32Rows, 1>(w, tile_bytes, x, x_stride, row, out, tile, buffer);
    }
    for (; row + 4 <= rows; row += 4) {
      linear_f32_part<4, 1>(w, tile_bytes, x, x_stride, row, out, tile, buffer);
    }
    for (; row + 2 <= rows; row += 2) {
      linear_f32_part<2, 1>(w, tile_bytes, x, x_stride, row, out, tile, buffer);
    }
    if (row < rows) linear_f32_part<1, 1>(w, tile_bytes, x, x_stride, row, out, tile, buffer);
  }
}

}  // namespace baton::BATON_ISA_NS
