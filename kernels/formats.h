#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/inline.h"

namespace baton {

// Types of weights. Quantised ones come in blocks of 32 columns, as in GGUF:
//   q4_0: f16 d, 16 bytes of nibbles;         w = d * (q - 8)
//   q4_1: f16 d, f16 m, 16 bytes of nibbles;  w = d * q + m   (product, then sum, both rounded)
//   q8_0: f16 d, 32 int8;                     w = d * q
// Byte j of the nibbles holds column j in its low half and column j + 16 in its high half.
enum class DType : std::uint8_t { f32, f16, bf16, q4_0, q4_1, q8_0 };

inline constexpr int kQuantBlock = 32;

struct FormatInfo {
  const char* name;  // "Q4_1"
  int block_cols;    // 32, or 1 for plain types
  int block_bytes;   // of one block of one row
};

// Constant facts of a type; any thread.
const FormatInfo& format_info(DType type) noexcept;

BATON_INLINE bool is_quantized(DType type) {
  return type >= DType::q4_0;
}

// Bytes of a row in the model file. cols must be a multiple of the type's block_cols.
std::size_t row_bytes(DType type, std::size_t cols) noexcept;

// dst[0..cols) = the row at src (model file layout) as f32.
void dequantize_row(DType type, const void* src, std::size_t cols, float* dst) noexcept;

// Exact widening; subnormal halves become normal floats, NaN stays NaN.
float f16_to_f32(std::uint16_t bits) noexcept;
float bf16_to_f32(std::uint16_t bits) noexcept;
// Round to nearest even; NaN becomes a quiet NaN; subnormal floats count as zero.
std::uint16_t f32_to_f16(float value) noexcept;
std::uint16_t f32_to_bf16(float value) noexcept;

}  // namespace baton
