#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/fp_mode.h"
#include "tests/unit/kernels/support.h"

namespace baton::test {

TEST_CASE("every half converts to the float it stands for and back") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const int exponent = static_cast<int>(half >> 10 & 31);
    const int fraction = half & 1023;
    const float value = f16_to_f32(half);
    if (exponent == 31) {
      CHECK(std::isnan(value) == (fraction != 0));
      if (fraction != 0) continue;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      CHECK(double{value} == (half & 0x8000 ? -magnitude : magnitude));
    }
    CHECK(f32_to_f16(value) == half);
  }
}

TEST_CASE("floats round to the nearest half and bfloat16, ties to even") {
  Random random(31);
  for (int i = 0; i < 200000; ++i) {
    auto bits = static_cast<std::uint32_t>(random.bits());
    if (i % 3 == 0) bits = (bits & 0x8fffffffu) | 0x30000000u;  // near the half's range
    if (i % 5 == 0) bits &= 0xffff8000u;                        // ties
    const auto value = std::bit_cast<float>(bits);
    const auto bf = f32_to_bf16(value);
    const auto half = f32_to_f16(value);
    if (std::isnan(value)) {
      CHECK(std::isnan(bf16_to_f32(bf)));
      CHECK(std::isnan(f16_to_f32(half)));
      continue;
    }
    if (std::abs(value) < std::numeric_limits<float>::min()) {
      CHECK(bf16_to_f32(bf) == 0.0f);
      continue;
    }
    const auto nearest = [&](std::uint16_t got, auto widen) {
      const double error = std::abs(double{widen(got)} - double{value});
      for (const int step : {-1, 1}) {
        const auto other = static_cast<std::uint16_t>(got + step);
        if (((other ^ got) & 0x8000) != 0 || !std::isfinite(widen(other))) continue;
        const double other_error = std::abs(double{widen(other)} - double{value});
        if (other_error < error || (other_error == error && (got & 1) != 0)) return false;
      }
      return true;
    };
    if (std::isfinite(bf16_to_f32(bf))) CHECK(nearest(bf, bf16_to_f32));
    CHECK(std::isfinite(f16_to_f32(half)) == (std::abs(value) < 65520.0f));
    if (std::isfinite(f16_to_f32(half))) CHECK(nearest(half, f16_to_f32));
  }
}

TEST_CASE("embedding a packed row gives the values of the row in the model file") {
  const FpModeScope mode;
  Random random(32);
  for (const DType type : kTypes) {
    CAPTURE(format_info(type).name);
    for (const std::size_t rows : {1, 16, 35}) {
      const Weights w(random, type, rows, 64);
      for (std::size_t r = 0; r < rows; ++r) {
        std::vector<float> out(64);
        reference().embed(w.matrix, r, out.data());
        CHECK(first_difference(out, std::span(w.values).subspan(r * 64, 64)) == -1);
      }
    }
  }
}

TEST_CASE("packing tile by tile and packing matrices behind each other give the same bytes") {
  Random random(33);
  for (const DType type : kTypes) {
    CAPTURE(format_info(type).name);
    const Weights a(random, type, 32, 64);
    const Weights b(random, type, 19, 64);
    std::vector<std::uint8_t> file = a.file;
    file.insert(file.end(), b.file.begin(), b.file.end());
    Buffer joined(packed_bytes(type, 51, 64));
    for (std::size_t t = 4; t-- > 0;) {
      pack_weights(type, 51, 64, file.data(), joined.data(), t, t + 1);
    }
    const std::size_t first = packed_bytes(type, 32, 64);
    CHECK(std::memcmp(joined.data(), a.packed.data(), first) == 0);
    CHECK(std::memcmp(joined.data() + first, b.packed.data(), packed_bytes(type, 19, 64)) == 0);
  }
}

TEST_CASE("block values follow the formats' definitions") {
  std::uint8_t q41[20] = {};
  const auto put = [](std::uint8_t* p, float v) {
    const std::uint16_t half = f32_to_f16(v);
    std::memcpy(p, &half, 2);
  };
  put(q41, 0.5f);
  put(q41 + 2, -1.0f);
  q41[4] = 0x3f;
  float out[32];
  dequantize_row(DType::q4_1, q41, 32, out);
  CHECK(out[0] == 15 * 0.5f - 1.0f);
  CHECK(out[16] == 3 * 0.5f - 1.0f);
  CHECK(out[1] == -1.0f);
  std::uint8_t q40[18] = {};
  put(q40, 2.0f);
  q40[2] = 0x8f;
  dequantize_row(DType::q4_0, q40, 32, out);
  CHECK(out[0] == 14.0f);
  CHECK(out[16] == 0.0f);
  CHECK(out[31] == -16.0f);
  std::uint8_t q80[34] = {};
  put(q80, 0.25f);
  q80[2] = 0x80;
  q80[33] = 0x7f;
  dequantize_row(DType::q8_0, q80, 32, out);
  CHECK(out[0] == -32.0f);
  CHECK(out[31] == 31.75f);
}

}  // namespace baton::test
