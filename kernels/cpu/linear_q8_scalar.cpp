#include "kernels/cpu/linear_q8.h"

// The reference of numerics.md rule 1, one output at a time.
namespace baton::scalar {
namespace {

struct BlockScales {
  float d;
  float m;
};

// Weight of row `lane`, column `col` of a block: unsigned, before its offset.
int weight_at(DType type, const std::byte* block, int lane, int col) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(block);
  if (type == DType::q8_0) return bytes[col / 4 * 64 + lane * 4 + col % 4];
  const int in_half = col % 16;
  const int byte = bytes[in_half / 4 * 64 + lane * 4 + in_half % 4];
  return col < 16 ? byte & 15 : byte >> 4;
}

BlockScales scales_at(DType type, const std::byte* block, int lane) {
  const auto* halves =
      reinterpret_cast<const std::uint16_t*>(block + (type == DType::q8_0 ? 512 : 256));
  const float m = type == DType::q4_1 ? f16_to_f32(halves[kTileRows + lane]) : 0.0f;
  return {f16_to_f32(halves[lane]), m};
}

float output(const PackedMatrix& w, const QuantRows& x, std::size_t row, std::size_t tile,
             int lane) {
  const std::size_t blocks = w.cols / kQuantBlock;
  const std::size_t tile_bytes = packed_tile_bytes(w.type, w.cols);
  const int offset = w.type == DType::q4_0 ? 8 : w.type == DType::q8_0 ? 128 : 0;
  const std::size_t in_group = row % kQuantRows;
  float acc = 0;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::byte* block = w.data + tile * tile_bytes + b * (tile_bytes / blocks);
    const std::byte* record = x.data + (row / kQuantRows * blocks + b) * kQuantRecordBytes;
    const auto* q = reinterpret_cast<const std::int8_t*>(record) + in_group * kQuantBlock;
    const auto* scales = reinterpret_cast<const float*>(record + kQuantScalesOffset);
    const float da = scales[in_group];
    const float sa = scales[kQuantRows + in_group];
    std::int32_t dot = 0;
    for (int k = 0; k < kQuantBlock; ++k) {
      dot += (weight_at(w.type, block, lane, k) - offset) * q[k];
    }
    const BlockScales s = scales_at(w.type, block, lane);
    acc = __builtin_fmaf(static_cast<float>(dot), s.d * da, acc);
    if (w.type == DType::q4_1) acc = __builtin_fmaf(s.m, sa, acc);
  }
  return acc;
}

}  // namespace

void linear_q8(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,
               std::size_t tile_begin, std::size_t tile_end, std::byte*) noexcept {
  for (std::size_t tile = tile_begin; tile < tile_end; ++tile) {
    for (std::size_t row = 0; row < x.rows; ++row) {
      for (int lane = 0; lane < kTileRows; ++lane) {
        const std::size_t n = tile * kTileRows + static_cast<std::size_t>(lane);
        if (n >= w.rows) break;
        float* p = out.data + row * out.stride + n;
        const float value = output(w, x, row, tile, lane);
        *p = out.add ? *p + value : value;
      }
    }
  }
}

}  // namespace baton::scalar
