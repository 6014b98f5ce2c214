#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats.h"

namespace baton {

inline constexpr int kTileRows = 16;

// A weight matrix, rows (outputs) x cols (inputs), in tiles of 16 rows; the same bytes for every
// instruction set. The last tile is filled up with zero rows. Per tile:
//   f32:        [col][16] float          f16, bf16:  [col][16] of two bytes
//   q4_0, q4_1: per block of 32 columns  [4][16 rows][4] bytes of nibbles (byte (v, row, j) holds
//               column 4v + j low, 16 + 4v + j high), [16] f16 d, and for q4_1 [16] f16 m
//   q8_0:       per block                [8][16 rows][4] bytes, q + 128 (column 4v + j), [16] f16 d
// Tiles follow each other without gaps, so matrices with the same cols and type whose rows are
// multiples of 16 may be packed one behind the other and used as one.
struct PackedMatrix {
  DType type = DType::f32;
  std::size_t rows = 0;
  std::size_t cols = 0;
  const std::byte* data = nullptr;  // 64-byte aligned; packed_bytes() of it

  BATON_INLINE std::size_t tiles() const { return (rows + kTileRows - 1) / kTileRows; }
};

// Bytes of one tile, and of a whole matrix (tiles rounded up).
std::size_t packed_tile_bytes(DType type, std::size_t cols) noexcept;
std::size_t packed_bytes(DType type, std::size_t rows, std::size_t cols) noexcept;

// Packs tiles [tile_begin, tile_end) of the matrix at src (rows x cols, model file layout, no
// alignment needed) into dst, the whole packed matrix. Tiles are independent: threads may share.
void pack_weights(DType type, std::size_t rows, std::size_t cols, const void* src, std::byte* dst,
                  std::size_t tile_begin, std::size_t tile_end) noexcept;

// Activations quantised by numerics.md rule 2, in groups of 12 rows. Record (group, block), 576
// bytes: int8 q[12][32]; float da[12]; float sa[12] = da * float(sum q); int32 -8 * sum q [12];
// int32 -128 * sum q [12]. Records of a group follow each other along the columns, so a range of
// blocks of a group is contiguous. Rows beyond the last one may hold anything; no output depends on
// them.
inline constexpr int kQuantRows = 12;
inline constexpr std::size_t kQuantScalesOffset = 384;
inline constexpr std::size_t kQuantOffsetsOffset = 480;
inline constexpr std::size_t kQuantRecordBytes = 576;

struct QuantRows {
  std::byte* data = nullptr;  // 64-byte aligned, quant_bytes() of it
  std::size_t rows = 0;
  std::size_t cols = 0;  // a multiple of 32
};

std::size_t quant_bytes(std::size_t rows, std::size_t cols) noexcept;

}  // namespace baton
