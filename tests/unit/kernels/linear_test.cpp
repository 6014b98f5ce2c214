#include <doctest/doctest.h>

#include <cmath>

#include "kernels/fp_mode.h"
#include "tests/unit/kernels/support.h"

namespace baton::test {
namespace {

struct Quantized {
  Quantized(const Ops& ops, const std::vector<float>& x, std::size_t rows, std::size_t cols)
      : bytes(quant_bytes(rows, cols)), view{bytes.data(), rows, cols} {
    ops.quantize(x.data(), cols, 0, rows, 0, cols / kQuantBlock, view);
  }
  Buffer bytes;
  QuantRows view;
};

std::vector<float> linear_q8(const Ops& ops, const Weights& w, const Quantized& x,
                             std::vector<float> out, bool add) {
  Buffer scratch(linear_scratch_bytes(w.matrix.cols));
  ops.linear_q8(w.matrix, x.view, {out.data(), w.matrix.rows, add}, 0, w.matrix.tiles(),
                scratch.data());
  return out;
}

std::vector<float> linear_f32(const Ops& ops, const Weights& w, const std::vector<float>& x,
                              std::size_t rows, std::vector<float> out, bool add) {
  Buffer scratch(linear_scratch_bytes(w.matrix.cols));
  ops.linear_f32(w.matrix, x.data(), w.matrix.cols, rows, {out.data(), w.matrix.rows, add}, 0,
                 w.matrix.tiles(), scratch.data());
  return out;
}

}  // namespace

TEST_CASE("int8 linear layers have the reference's bits on every instruction set and shape") {
  const FpModeScope mode;
  Random random(1);
  for (int round = 0; round < 60; ++round) {
    const DType type = kTypes[3 + round % 3];
    const std::size_t rows = random.between(1, 64);
    const std::size_t outputs = random.between(1, 70);
    const std::size_t cols = 32 * random.between(1, 9);
    CAPTURE(format_info(type).name);
    CAPTURE(rows);
    CAPTURE(outputs);
    CAPTURE(cols);
    const Weights w(random, type, outputs, cols);
    const std::vector<float> x = normals(random, rows * cols);
    const Quantized quantized(reference(), x, rows, cols);
    const std::vector<float> before = normals(random, rows * outputs);
    const bool add = random.between(0, 1) == 1;
    const auto expected = linear_q8(reference(), w, quantized, before, add);
    for (const Ops* ops : vector_tables()) {
      CAPTURE(ops->name);
      const Quantized own(*ops, x, rows, cols);
      CHECK(first_difference(linear_q8(*ops, w, own, before, add), expected) == -1);
    }
  }
}

TEST_CASE("f32 linear layers have the reference's bits for all weight types") {
  const FpModeScope mode;
  Random random(2);
  for (int round = 0; round < 72; ++round) {
    const DType type = kTypes[round % 6];
    const std::size_t rows = random.between(1, 33);
    const std::size_t outputs = random.between(1, 90);
    const std::size_t cols =
        is_quantized(type) ? 32 * random.between(1, 5) : random.between(1, 150);
    CAPTURE(format_info(type).name);
    CAPTURE(rows);
    CAPTURE(outputs);
    CAPTURE(cols);
    const Weights w(random, type, outputs, cols);
    const std::vector<float> x = normals(random, rows * cols);
    const std::vector<float> before = normals(random, rows * outputs);
    const bool add = random.between(0, 1) == 1;
    const auto expected = linear_f32(reference(), w, x, rows, before, add);
    for (const Ops* ops : vector_tables()) {
      CAPTURE(ops->name);
      CHECK(first_difference(linear_f32(*ops, w, x, rows, before, add), expected) == -1);
    }
  }
}

TEST_CASE("the reference f32 linear layer is one ascending chain of fma over the weights' values") {
  const FpModeScope mode;
  Random random(3);
  for (const DType type : kTypes) {
    CAPTURE(format_info(type).name);
    const std::size_t rows = 3;
    const std::size_t outputs = 37;
    const std::size_t cols = 96;
    const Weights w(random, type, outputs, cols);
    const std::vector<float> x = normals(random, rows * cols);
    const auto got = linear_f32(reference(), w, x, rows, std::vector<float>(rows * outputs), false);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t n = 0; n < outputs; ++n) {
        float chain = 0;
        double exact = 0;
        for (std::size_t k = 0; k < cols; ++k) {
          chain = std::fma(w.values[n * cols + k], x[r * cols + k], chain);
          exact += double{w.values[n * cols + k]} * double{x[r * cols + k]};
        }
        CHECK(got[r * outputs + n] == chain);
        CHECK(got[r * outputs + n] == doctest::Approx(exact).epsilon(1e-4).scale(1.0));
      }
    }
  }
}

TEST_CASE("the reference int8 linear layer is near the exact product of what it was given") {
  const FpModeScope mode;
  Random random(4);
  for (const DType type : {DType::q4_0, DType::q4_1, DType::q8_0}) {
    CAPTURE(format_info(type).name);
    const std::size_t rows = 9;
    const std::size_t outputs = 33;
    const std::size_t cols = 576;
    const Weights w(random, type, outputs, cols);
    const std::vector<float> x = normals(random, rows * cols);
    const Quantized q(reference(), x, rows, cols);
    const auto got = linear_q8(reference(), w, q, std::vector<float>(rows * outputs), false);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t n = 0; n < outputs; ++n) {
        double exact = 0;  // with the quantised activations
        double magnitude = 0;
        for (std::size_t k = 0; k < cols; ++k) {
          const std::byte* record =
              q.view.data + (r / kQuantRows * (cols / 32) + k / 32) * kQuantRecordBytes;
          const auto* values = reinterpret_cast<const std::int8_t*>(record);
          const auto* scales = reinterpret_cast<const float*>(record + kQuantScalesOffset);
          const double a = double{scales[r % kQuantRows]} * values[r % kQuantRows * 32 + k % 32];
          CHECK(std::abs(a - double{x[r * cols + k]}) <= double{scales[r % kQuantRows]} * 0.5001);
          exact += double{w.values[n * cols + k]} * a;
          magnitude += std::abs(double{w.values[n * cols + k]} * a);
        }
        CHECK(std::abs(double{got[r * outputs + n]} - exact) <= 4e-6 * magnitude);
      }
    }
  }
}

TEST_CASE("a row alone equals the row in a batch, and tiles may be cut anywhere") {
  const FpModeScope mode;
  Random random(5);
  std::vector<const Ops*> tables = vector_tables();
  tables.push_back(&reference());
  for (const Ops* ops : tables) {
    for (const DType type : {DType::q4_0, DType::q4_1, DType::q8_0}) {
      const std::size_t rows = 41;
      const std::size_t outputs = 100;
      const std::size_t cols = 160;
      const Weights w(random, type, outputs, cols);
      const std::vector<float> x = normals(random, rows * cols);
      const Quantized all(*ops, x, rows, cols);
      const auto batch = linear_q8(*ops, w, all, std::vector<float>(rows * outputs), false);
      for (std::size_t r = 0; r < rows; r += 7) {
        const std::vector<float> row(x.begin() + static_cast<long>(r * cols),
                                     x.begin() + static_cast<long>((r + 1) * cols));
        const Quantized one(*ops, row, 1, cols);
        const auto alone = linear_q8(*ops, w, one, std::vector<float>(outputs), false);
        CHECK(first_difference(alone, std::span(batch).subspan(r * outputs, outputs)) == -1);
      }
      std::vector<float> pieces(rows * outputs);
      Buffer scratch(linear_scratch_bytes(cols));
      for (std::size_t t = 0; t < w.matrix.tiles(); ++t) {
        ops->linear_q8(w.matrix, all.view, {pieces.data(), outputs, false}, t, t + 1,
                       scratch.data());
      }
      CHECK(first_difference(pieces, batch) == -1);
    }
  }
}

TEST_CASE("the extreme weights and activations do not overflow the narrow sums") {
  const FpModeScope mode;
  for (const DType type : {DType::q4_0, DType::q4_1, DType::q8_0}) {
    CAPTURE(format_info(type).name);
    Random random(6);
    Weights w(random, type, 32, 64);
    const std::size_t quants = type == DType::q8_0 ? 32 : 16;
    const auto step = static_cast<std::size_t>(format_info(type).block_bytes);
    for (std::size_t at = 0; at < w.file.size(); at += step) {
      for (std::size_t i = step - quants; i < step; ++i) {
        const bool even_row = at / step / 2 % 2 == 0;
        w.file[at + i] = type == DType::q8_0 ? (even_row ? 0x80 : 0x7f) : (even_row ? 0xff : 0x00);
      }
    }
    pack_weights(type, 32, 64, w.file.data(), w.packed.data(), 0, 2);
    for (const float sign : {1.0f, -1.0f}) {
      const std::vector<float> x(9 * 64, sign * 3.0f);
      const Quantized q(reference(), x, 9, 64);
      const auto expected = linear_q8(reference(), w, q, std::vector<float>(9 * 32), false);
      for (const Ops* ops : vector_tables()) {
        CAPTURE(ops->name);
        CHECK(first_difference(linear_q8(*ops, w, q, std::vector<float>(9 * 32), false),
                               expected) == -1);
      }
    }
  }
}

TEST_CASE("NaN and infinite activations come out as such, not as finite numbers") {
  const FpModeScope mode;
  Random random(7);
  const Weights w(random, DType::q4_1, 16, 64);
  for (const float bad : {std::nanf(""), INFINITY, -INFINITY}) {
    std::vector<float> x = normals(random, 64);
    x[37] = bad;
    std::vector<const Ops*> tables = vector_tables();
    tables.push_back(&reference());
    for (const Ops* ops : tables) {
      const Quantized q(*ops, x, 1, 64);
      for (const float y : linear_q8(*ops, w, q, std::vector<float>(16), false)) {
        CHECK_FALSE(std::isfinite(y));
      }
    }
  }
}

}  // namespace baton::test
