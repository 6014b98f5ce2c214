#include "kernels/packed.h"

#include <cstring>

#include "kernels/cpu/ops_table.h"

namespace baton {
namespace {

constexpr std::size_t kRows = kTileRows;

// Bytes of 32 columns (or one, for plain types) of a tile.
std::size_t tile_block_bytes(DType type) {
  return static_cast<std::size_t>(format_info(type).block_bytes) * kRows;
}

// One block of one row into its tile's block. File: d, then m (q4_1), then quants.
void pack_block(DType type, const std::uint8_t* src, std::uint8_t* block, std::size_t lane) {
  const bool bytes = type == DType::q8_0;
  const std::size_t quants = bytes ? 32 : 16;
  std::uint8_t* scales = block + quants * kRows;
  std::memcpy(scales + lane * 2, src, 2);
  src += 2;
  if (type == DType::q4_1) {
    std::memcpy(scales + kRows * 2 + lane * 2, src, 2);
    src += 2;
  }
  for (std::size_t i = 0; i < quants; ++i) {
    const std::uint8_t q = bytes ? static_cast<std::uint8_t>(src[i] ^ 0x80u) : src[i];
    block[i / 4 * kRows * 4 + lane * 4 + i % 4] = q;
  }
}

void pack_row(DType type, std::size_t cols, const std::uint8_t* src, std::uint8_t* tile,
              std::size_t lane) {
  if (is_quantized(type)) {
    const auto file_step = static_cast<std::size_t>(format_info(type).block_bytes);
    for (std::size_t b = 0; b < cols / kQuantBlock; ++b) {
      pack_block(type, src + b * file_step, tile + b * tile_block_bytes(type), lane);
    }
    return;
  }
  const std::size_t size = type == DType::f32 ? 4 : 2;
  for (std::size_t col = 0; col < cols; ++col) {
    std::memcpy(tile + (col * kRows + lane) * size, src + col * size, size);
  }
}

// A row of zeros: zero bytes, except that the bytes of q8_0 are offset by 128.
void pack_zero_row(DType type, std::size_t cols, std::uint8_t* tile, std::size_t lane) {
  static constexpr std::uint8_t kZeros[64] = {};
  if (is_quantized(type)) {
    for (std::size_t b = 0; b < cols / kQuantBlock; ++b) {
      pack_block(type, kZeros, tile + b * tile_block_bytes(type), lane);
    }
    return;
  }
  const std::size_t size = type == DType::f32 ? 4 : 2;
  for (std::size_t col = 0; col < cols; ++col) {
    std::memset(tile + (col * kRows + lane) * size, 0, size);
  }
}

// Back to the file's block, so that one dequantiser defines the values.
void unpack_block(DType type, const std::uint8_t* block, std::size_t lane, std::uint8_t* dst) {
  const bool bytes = type == DType::q8_0;
  const std::size_t quants = bytes ? 32 : 16;
  const std::uint8_t* scales = block + quants * kRows;
  std::memcpy(dst, scales + lane * 2, 2);
  dst += 2;
  if (type == DType::q4_1) {
    std::memcpy(dst, scales + kRows * 2 + lane * 2, 2);
    dst += 2;
  }
  for (std::size_t i = 0; i < quants; ++i) {
    const std::uint8_t q = block[i / 4 * kRows * 4 + lane * 4 + i % 4];
    dst[i] = bytes ? static_cast<std::uint8_t>(q ^ 0x80u) : q;
  }
}

}  // namespace

std::size_t packed_tile_bytes(DType type, std::size_t cols) noexcept {
  return row_bytes(type, cols) * kRows;
}

std::size_t packed_bytes(DType type, std::size_t rows, std::size_t cols) noexcept {
  return (rows + kRows - 1) / kRows * packed_tile_bytes(type, cols);
}

void pack_weights(DType type, std::size_t rows, std::size_t cols, const void* src, std::byte* dst,
                  std::size_t tile_begin, std::size_t tile_end) noexcept {
  const auto* file = static_cast<const std::uint8_t*>(src);
  const std::size_t file_row = row_bytes(type, cols);
  for (std::size_t t = tile_begin; t < tile_end; ++t) {
    auto* tile = reinterpret_cast<std::uint8_t*>(dst) + t * packed_tile_bytes(type, cols);
    for (std::size_t lane = 0; lane < kRows; ++lane) {
      const std::size_t row = t * kRows + lane;
      if (row < rows) {
        pack_row(type, cols, file + row * file_row, tile, lane);
      } else {
        pack_zero_row(type, cols, tile, lane);
      }
    }
  }
}

std::size_t quant_bytes(std::size_t rows, std::size_t cols) noexcept {
  return (rows + kQuantRows - 1) / kQuantRows * (cols / kQuantBlock) * kQuantRecordBytes;
}

void embed_row(const PackedMatrix& w, std::size_t row, float* out) noexcept {
  const auto* tile = reinterpret_cast<const std::uint8_t*>(w.data) +
                     row / kRows * packed_tile_bytes(w.type, w.cols);
  const std::size_t lane = row % kRows;
  if (is_quantized(w.type)) {
    std::uint8_t block[34];
    for (std::size_t b = 0; b < w.cols / kQuantBlock; ++b) {
      unpack_block(w.type, tile + b * tile_block_bytes(w.type), lane, block);
      dequantize_row(w.type, block, kQuantBlock, out + b * kQuantBlock);
    }
    return;
  }
  const std::size_t size = w.type == DType::f32 ? 4 : 2;
  for (std::size_t col = 0; col < w.cols; ++col) {
    dequantize_row(w.type, tile + (col * kRows + lane) * size, 1, out + col);
  }
}

}  // namespace baton
