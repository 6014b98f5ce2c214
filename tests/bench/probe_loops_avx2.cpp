#include <immintrin.h>

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

// Eight vpmaddubsw summed in int16, then one vpmaddwd, with four sums at a time.
double int8(std::size_t rounds, float* sink) {
  __m256i total[4] = {};
  __m256i w[4];
  for (auto& x : w) x = _mm256_set1_epi8(3);
  const __m256i a = _mm256_set1_epi8(-5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (std::size_t r = 0; r < rounds; ++r) {
    __m256i narrow[4];
    for (auto& n : narrow) n = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int step = 0; step < 8; ++step) {
      for (int i = 0; i < 4; ++i) {
        asm volatile("" : "+x"(w[i]));  // as if it were another one
        narrow[i] = _mm256_add_epi16(narrow[i], _mm256_maddubs_epi16(w[i], a));
      }
    }
    for (int i = 0; i < 4; ++i) {
      total[i] = _mm256_add_epi32(total[i], _mm256_madd_epi16(narrow[i], ones));
    }
  }
  __m256i sum = _mm256_add_epi32(total[0], total[1]);
  sum = _mm256_add_epi32(sum, _mm256_add_epi32(total[2], total[3]));
  *sink = static_cast<float>(_mm256_extract_epi32(sum, 0));
  return static_cast<double>(rounds) * 4 * 8 * 32 * 2;
}

double fma(std::size_t rounds, float* sink) {
  __m256 acc[12];
  for (auto& v : acc) v = _mm256_set1_ps(1.0f);
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
