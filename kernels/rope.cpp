#include "kernels/rope.h"

#include <bit>
#include <cstdint>

namespace baton {
namespace {

// Double-precision functions of additions, multiplications and divisions only: the C library's may
// differ between hosts in the last bit, and with it the rounded tables. Good to about 1e-15.

constexpr double kLn2High = 6.93147180369123816490e-01;  // low 32 bits zero
constexpr double kLn2Low = 1.90821492927058770002e-10;

// Natural logarithm of a positive, normal x.
double log_of(double x) {
  const auto bits = std::bit_cast<std::uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);  // |s| < 0.1716
  const double z = s * s;
  double sum = 0;
  for (int k = 25; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
  const double e = exponent;
  return e * kLn2High + (e * kLn2Low + 2.0 * s * sum);
}

// e^x for |x| < 700.
double exp_of(double x) {
  const double n =
      static_cast<double>(static_cast<int>(x * 1.44269504088896340736 + (x < 0 ? -0.5 : 0.5)));
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = 1.0;
  for (int k = 16; k >= 1; --k) sum = 1.0 + sum * r / k;
  const auto bits = static_cast<std::uint64_t>(static_cast<int>(n) + 1023) << 52;
  return sum * std::bit_cast<double>(bits);
}

struct SinCos {
  double sin;
  double cos;
};

// Of an angle in [0, 2^26).
SinCos sin_cos_of(double angle) {
  // pi / 2 in three parts; n * the first two is exact for n < 2^26.
  constexpr double kFirst = 1.570796012878418;        // 22 bits
  constexpr double kSecond = 3.1391647326017846e-07;  // 24 bits
  constexpr double kThird = 5.390302858158119e-15;
  const auto n = static_cast<std::int64_t>(angle * 0.63661977236758134308 + 0.5);
  const auto turns = static_cast<double>(n);
  const double r = ((angle - turns * kFirst) - turns * kSecond) - turns * kThird;
  const double z = r * r;
  double s = 1.0;
  double c = 1.0;
  for (int k = 10; k >= 1; --k) {
    s = 1.0 - s * z / ((2.0 * k) * (2.0 * k + 1.0));
    c = 1.0 - c * z / ((2.0 * k - 1.0) * (2.0 * k));
  }
  s *= r;
  switch (n & 3) {
    case 0: return {s, c};
    case 1: return {c, -s};
    case 2: return {-s, -c};
    default: return {-c, s};
  }
}

}  // namespace

void fill_rope_table(const RopeParams& params, std::size_t position_begin, std::size_t position_end,
                     float* table) noexcept {
  const std::size_t dim = params.rope_dim;
  const double log_base = log_of(params.base);
  for (std::size_t pair = 0; pair < dim / 2; ++pair) {
    const double exponent = 2.0 * static_cast<double>(pair) / static_cast<double>(dim);
    double frequency = exp_of(-exponent * log_base);
    if (params.factors != nullptr) frequency /= static_cast<double>(params.factors[pair]);
    for (std::size_t position = position_begin; position < position_end; ++position) {
      const SinCos v = sin_cos_of(static_cast<double>(position) * frequency);
      float* row = table + position * rope_row_floats(dim);
      const auto cosine = static_cast<float>(v.cos);
      const auto sine = static_cast<float>(v.sin);
      row[2 * pair] = cosine;
      row[2 * pair + 1] = cosine;
      row[dim + 2 * pair] = -sine;
      row[dim + 2 * pair + 1] = sine;
    }
  }
}

}  // namespace baton
