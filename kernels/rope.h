#pragma once

#include <cstddef>

namespace baton {

// A RoPE table has one row a position, 2 * rope_dim floats: [0, rope_dim) the cosines, each twice;
// [rope_dim, 2 * rope_dim) the sines, each twice, the first of a pair negated.
inline constexpr std::size_t rope_row_floats(std::size_t rope_dim) {
  return 2 * rope_dim;
}

struct RopeParams {
  std::size_t rope_dim = 0;  // even
  double base = 10000.0;
  // Divisors of the frequencies, rope_dim / 2 of them (rope_freqs.weight); null for none.
  const float* factors = nullptr;
};

// Fills rows [position_begin, position_end) of the table that starts at `table` (row 0). Angle
// position * base^(-2i / rope_dim) in double, by own polynomials (no libm), then rounded to f32.
void fill_rope_table(const RopeParams& params, std::size_t position_begin, std::size_t position_end,
                     float* table) noexcept;

}  // namespace baton
