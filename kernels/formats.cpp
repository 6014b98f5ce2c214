#include "kernels/formats.h"

#include <bit>
#include <cstring>

namespace baton {
namespace {

std::uint16_t load_u16(const std::uint8_t* p) {
  std::uint16_t v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

void dequantize_q4(const std::uint8_t* block, bool has_min, float* dst) {
  const float d = f16_to_f32(load_u16(block));
  const float m = has_min ? f16_to_f32(load_u16(block + 2)) : 0.0f;
  const std::uint8_t* nibbles = block + (has_min ? 4 : 2);
  for (int j = 0; j < kQuantBlock / 2; ++j) {
    const int low = nibbles[j] & 15;
    const int high = nibbles[j] >> 4;
    if (has_min) {
      dst[j] = d * static_cast<float>(low) + m;
      dst[j + 16] = d * static_cast<float>(high) + m;
    } else {
      dst[j] = d * static_cast<float>(low - 8);
      dst[j + 16] = d * static_cast<float>(high - 8);
    }
  }
}

void dequantize_q8(const std::uint8_t* block, float* dst) {
  const float d = f16_to_f32(load_u16(block));
  for (int j = 0; j < kQuantBlock; ++j) {
    dst[j] = d * static_cast<float>(static_cast<std::int8_t>(block[2 + j]));
  }
}

}  // namespace

const FormatInfo& format_info(DType type) noexcept {
  static constexpr FormatInfo kInfo[] = {{"F32", 1, 4},    {"F16", 1, 2},    {"BF16", 1, 2},
                                         {"Q4_0", 32, 18}, {"Q4_1", 32, 20}, {"Q8_0", 32, 34}};
  return kInfo[static_cast<int>(type)];
}

std::size_t row_bytes(DType type, std::size_t cols) noexcept {
  const FormatInfo& info = format_info(type);
  return cols / static_cast<std::size_t>(info.block_cols) *
         static_cast<std::size_t>(info.block_bytes);
}

void dequantize_row(DType type, const void* src, std::size_t cols, float* dst) noexcept {
  const auto* p = static_cast<const std::uint8_t*>(src);
  if (is_quantized(type)) {
    const auto step = static_cast<std::size_t>(format_info(type).block_bytes);
    for (std::size_t col = 0; col < cols; col += kQuantBlock, p += step) {
      if (type == DType::q8_0) {
        dequantize_q8(p, dst + col);
      } else {
        dequantize_q4(p, type == DType::q4_1, dst + col);
      }
    }
    return;
  }
  if (type == DType::f32) {
    std::memcpy(dst, src, cols * sizeof(float));
    return;
  }
  for (std::size_t col = 0; col < cols; ++col, p += 2) {
    dst[col] = type == DType::f16 ? f16_to_f32(load_u16(p)) : bf16_to_f32(load_u16(p));
  }
}

float f16_to_f32(std::uint16_t bits) noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t exponent = bits >> 10 & 31u;
  std::uint32_t fraction = bits & 0x3ffu;
  if (exponent == 31) {
    if (fraction != 0) fraction |= 0x200u;  // quiet
    return std::bit_cast<float>(sign | 0x7f800000u | fraction << 13);
  }
  if (exponent != 0) return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
  if (fraction == 0) return std::bit_cast<float>(sign);
  const auto shift = static_cast<std::uint32_t>(std::countl_zero(fraction)) - 21;  // to bit 10
  fraction = fraction << shift & 0x3ffu;
  return std::bit_cast<float>(sign | (113 - shift) << 23 | fraction << 13);
}

float bf16_to_f32(std::uint16_t bits) noexcept {
  return std::bit_cast<float>(std::uint32_t{bits} << 16);
}

std::uint16_t f32_to_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65,520 and more round to infinity
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else if (magnitude > 0x33000000u) {  // subnormal half: multiples of 2^-24
    const std::uint32_t shift = 126 - (magnitude >> 23);
    const std::uint32_t fraction = (magnitude & 0x7fffffu) | 0x800000u;
    const std::uint32_t kept = fraction >> shift;
    const std::uint32_t rest = fraction & ((1u << shift) - 1u);
    const std::uint32_t middle = 1u << (shift - 1);
    half = kept + (rest > middle || (rest == middle && (kept & 1u) != 0) ? 1u : 0u);
  } else {
    half = 0;
  }
  return static_cast<std::uint16_t>(sign | half);
}

std::uint16_t f32_to_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  if (magnitude < 0x00800000u) return static_cast<std::uint16_t>(bits >> 16 & 0x8000u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace baton
