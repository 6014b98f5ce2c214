#include <doctest/doctest.h>

#include <cmath>

#include "kernels/fp_mode.h"
#include "kernels/rope.h"
#include "tests/unit/kernels/support.h"

namespace baton::test {

TEST_CASE("norm, SiLU and sums have the reference's bits at every length") {
  const FpModeScope mode;
  Random random(21);
  for (std::size_t n = 1; n < 150; n += random.between(1, 4)) {
    CAPTURE(n);
    const std::vector<float> a = normals(random, n);
    const std::vector<float> b = normals(random, n, 4);
    std::vector<float> norm(n), silu(n), sum(n);
    reference().rms_norm(a.data(), b.data(), n, 1e-5f, norm.data());
    reference().silu_mul(a.data(), b.data(), n, silu.data());
    reference().add(a.data(), b.data(), n, sum.data());
    for (const Ops* ops : vector_tables()) {
      CAPTURE(ops->name);
      std::vector<float> out(n + 1, 77.0f);
      const auto written = std::span(out).first(n);
      ops->rms_norm(a.data(), b.data(), n, 1e-5f, out.data());
      CHECK(first_difference(written, norm) == -1);
      ops->silu_mul(a.data(), b.data(), n, out.data());
      CHECK(first_difference(written, silu) == -1);
      ops->add(a.data(), b.data(), n, out.data());
      CHECK(first_difference(written, sum) == -1);
      CHECK(out[n] == 77.0f);
      std::vector<float> in_place = a;
      ops->rms_norm(in_place.data(), b.data(), n, 1e-5f, in_place.data());
      CHECK(first_difference(in_place, norm) == -1);
    }
  }
}

TEST_CASE("the reference norm and SiLU are near the exact ones") {
  const FpModeScope mode;
  Random random(22);
  const std::size_t n = 576;
  const std::vector<float> x = normals(random, n, 3);
  const std::vector<float> w = normals(random, n);
  std::vector<float> norm(n), silu(n);
  reference().rms_norm(x.data(), w.data(), n, 1e-5f, norm.data());
  reference().silu_mul(x.data(), w.data(), n, silu.data());
  double squares = 0;
  for (const float v : x) squares += double{v} * double{v};
  const double r = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
  for (std::size_t i = 0; i < n; ++i) {
    const double wanted = double{x[i]} * r * double{w[i]};
    CHECK(std::abs(double{norm[i]} - wanted) <= 4e-7 * std::abs(wanted));
    const double gated = double{x[i]} / (1.0 + std::exp(-double{x[i]})) * double{w[i]};
    CHECK(std::abs(double{silu[i]} - gated) <= 6e-7 * std::abs(gated));
  }
}

TEST_CASE("quantised activations are the same bytes on every instruction set, in any pieces") {
  const FpModeScope mode;
  Random random(23);
  for (int round = 0; round < 20; ++round) {
    const std::size_t rows = random.between(1, 20);
    const std::size_t blocks = random.between(1, 8);
    std::vector<float> x = normals(random, rows * blocks * 32);
    for (std::size_t i = 0; i < 32; ++i) x[i] = 0;  // a block of zeros
    x[x.size() - 1] = 3e38f;                        // a huge one
    x[x.size() / 2] = 1e-41f;                       // a subnormal
    const auto run = [&](const Ops& ops, bool pieces) {
      Buffer bytes(quant_bytes(rows, blocks * 32));
      const QuantRows dst{bytes.data(), rows, blocks * 32};
      if (pieces) {
        for (std::size_t r = 0; r < rows; ++r) {
          for (std::size_t b = 0; b < blocks; ++b) {
            ops.quantize(x.data(), blocks * 32, r, r + 1, b, b + 1, dst);
          }
        }
      } else {
        ops.quantize(x.data(), blocks * 32, 0, rows, 0, blocks, dst);
      }
      return bytes;
    };
    const Buffer expected = run(reference(), false);
    for (const Ops* ops : vector_tables()) {
      CAPTURE(ops->name);
      const Buffer got = run(*ops, round % 2 == 0);
      CHECK(std::memcmp(got.data(), expected.data(), expected.size()) == 0);
    }
  }
}

TEST_CASE("RoPE tables hold the rotation to the last bit that f32 has") {
  const FpModeScope mode;
  const std::size_t dim = 64;
  std::vector<float> table(8192 * rope_row_floats(dim));
  fill_rope_table({dim, 100000.0, nullptr}, 0, 8192, table.data());
  double worst = 0;
  for (std::size_t position = 0; position < 8192; position += 37) {
    for (std::size_t i = 0; i < dim / 2; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(100000.0, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
      const float* row = &table[position * rope_row_floats(dim)];
      worst = std::max(worst, std::abs(double{row[2 * i]} - std::cos(angle)));
      worst = std::max(worst, std::abs(double{row[dim + 2 * i + 1]} - std::sin(angle)));
      CHECK(row[2 * i] == row[2 * i + 1]);
      CHECK(row[dim + 2 * i] == -row[dim + 2 * i + 1]);
    }
  }
  CHECK(worst <= 3.1e-8);
}

TEST_CASE("RoPE frequency factors divide the frequencies, and rows do not depend on the range") {
  const FpModeScope mode;
  const std::vector<float> factors = {1.0f, 2.0f, 4.0f, 8.0f};
  std::vector<float> plain(100 * 16), scaled(100 * 16), pieces(100 * 16);
  fill_rope_table({8, 10000.0, nullptr}, 0, 100, plain.data());
  fill_rope_table({8, 10000.0, factors.data()}, 0, 100, scaled.data());
  CHECK(scaled[64 * 16 + 4] == plain[16 * 16 + 4]);  // pair 2 at position 64 = at position 16
  for (std::size_t p = 0; p < 100; p += 9) {
    fill_rope_table({8, 10000.0, nullptr}, p, std::min<std::size_t>(100, p + 9), pieces.data());
  }
  CHECK(first_difference(pieces, plain) == -1);
}

TEST_CASE("RoPE rotates neighbouring pairs, alike on every instruction set") {
  const FpModeScope mode;
  Random random(24);
  for (const std::size_t dim : {2, 8, 16, 26, 64, 128}) {
    for (const std::size_t rope_dim : {dim, dim / 2 / 2 * 2}) {
      if (rope_dim == 0) continue;
      CAPTURE(dim);
      CAPTURE(rope_dim);
      std::vector<float> table(500 * rope_row_floats(rope_dim));
      fill_rope_table({rope_dim, 10000.0, nullptr}, 0, 500, table.data());
      const float* row = &table[321 * rope_row_floats(rope_dim)];
      const std::vector<float> x = normals(random, 3 * dim);
      std::vector<float> expected = x;
      reference().rope(expected.data(), 3, dim, rope_dim, row);
      for (std::size_t h = 0; h < 3; ++h) {
        for (std::size_t i = 0; i < rope_dim; i += 2) {
          const double c = row[i];
          const double s = row[rope_dim + i + 1];
          const double a = x[h * dim + i];
          const double b = x[h * dim + i + 1];
          CHECK(expected[h * dim + i] == doctest::Approx(a * c - b * s).epsilon(1e-6).scale(3));
          CHECK(expected[h * dim + i + 1] == doctest::Approx(b * c + a * s).epsilon(1e-6).scale(3));
        }
        for (std::size_t i = rope_dim; i < dim; ++i) CHECK(expected[h * dim + i] == x[h * dim + i]);
      }
      for (const Ops* ops : vector_tables()) {
        std::vector<float> got = x;
        ops->rope(got.data(), 3, dim, rope_dim, row);
        CHECK(first_difference(got, expected) == -1);
      }
    }
  }
}

}  // namespace baton::test
