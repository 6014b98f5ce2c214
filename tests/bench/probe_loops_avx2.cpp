#include <immintrin.h>

#include "kernels/inline.h"
#include "tests/bench/probe_loops.h"

namespace baton::bench::avx2 {

double read(const void* data, std::size_t bytes, float* sink) {
  const auto* p = static_cast<const __m256i*>(data);
  __m256i sum[4] = {};
  for (std::size_t i = 0; i + 4 <= bytes / sizeof(__m256i); i += 4) {
    for (std::size_t j = 0; j < 4; ++j)
      sum[j] = _mm256_xor_si256(sum[j], _mm256_load_si256(p + i + j));
  }
  const __m256i all =
      _mm256_xor_si256(_mm256_xor_si256(sum[0], sum[1]), _mm256_xor_si256(sum[2], sum[3]));
  *sink = static_cast<float>(_mm256_extract_epi32(all, 0));
  return static_cast<double>(bytes);
}

// Eight vpmaddubsw summed in int16, then one vpmaddwd, with four sums at a time. Operands come from
// the first-level cache, so that no two products are the same and none can be kept from round to
// round.
double int8(std::size_t rounds, float* sink) {
  alignas(32) unsigned char w[32][32];
  for (int i = 0; i < 32; ++i) {
    for (unsigned char& byte : w[i]) byte = static_cast<unsigned char>(i % 16);
  }
  __m256i total[4];
  for (auto& t : total) t = _mm256_setzero_si256();
  __m256i a = _mm256_set1_epi8(-5);
  const __m256i ones = _mm256_set1_epi16(1);
  const auto product = [&](int i) {
    return _mm256_maddubs_epi16(_mm256_load_si256(reinterpret_cast<const __m256i*>(w[i])), a);
  };
  for (std::size_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+x"(a));
    __m256i n0 = product(0);
    __m256i n1 = product(1);
    __m256i n2 = product(2);
    __m256i n3 = product(3);
    const auto add = [&](__m256i& sum, int i) {
      sum = _mm256_add_epi16(sum, product(i));
      BATON_SETTLE(sum);
    };
#pragma GCC unroll 7
    for (int step = 1; step < 8; ++step) {
      add(n0, 4 * step);
      add(n1, 4 * step + 1);
      add(n2, 4 * step + 2);
      add(n3, 4 * step + 3);
    }
    total[0] = _mm256_add_epi32(total[0], _mm256_madd_epi16(n0, ones));
    total[1] = _mm256_add_epi32(total[1], _mm256_madd_epi16(n1, ones));
    total[2] = _mm256_add_epi32(total[2], _mm256_madd_epi16(n2, ones));
    total[3] = _mm256_add_epi32(total[3], _mm256_madd_epi16(n3, ones));
  }
  __m256i sum = _mm256_add_epi32(total[0], total[1]);
  sum = _mm256_add_epi32(sum, _mm256_add_epi32(total[2], total[3]));
  *sink = static_cast<float>(_mm256_extract_epi32(sum, 0));
  return static_cast<double>(rounds) * 4 * 8 * 32 * 2;
}

double fma(std::size_t rounds, float* sink) {
  __m256 acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm256_set1_ps(static_cast<float>(i));
  const __m256 half = _mm256_set1_ps(0.5f);
  for (std::size_t r = 0; r < rounds; ++r) {
    for (auto& v : acc) v = _mm256_fmadd_ps(v, half, half);
  }
  __m256 sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm256_add_ps(sum, acc[i]);
  *sink = _mm256_cvtss_f32(sum);
  return static_cast<double>(rounds) * 12 * 8 * 2;
}

}  // namespace baton::bench::avx2
