#include <immintrin.h>

#include "tests/bench/probe_loops.h"

namespace baton::bench::avx512 {

double read(const void* data, std::size_t bytes, float* sink) {
  const auto* p = static_cast<const __m512i*>(data);
  __m512i sum[4] = {};
  for (std::size_t i = 0; i + 4 <= bytes / sizeof(__m512i); i += 4) {
    for (std::size_t j = 0; j < 4; ++j)
      sum[j] = _mm512_xor_si512(sum[j], _mm512_load_si512(p + i + j));
  }
  const __m512i all =
      _mm512_xor_si512(_mm512_xor_si512(sum[0], sum[1]), _mm512_xor_si512(sum[2], sum[3]));
  *sink = static_cast<float>(_mm512_reduce_add_epi32(all));
  return static_cast<double>(bytes);
}

double int8(std::size_t rounds, float* sink) {
  __m512i acc[12];  // all different, else the compiler would compute one of them
  for (int i = 0; i < 12; ++i) acc[i] = _mm512_set1_epi32(i);
  const __m512i w = _mm512_set1_epi8(3);
  const __m512i a = _mm512_set1_epi8(-5);
  for (std::size_t r = 0; r < rounds; ++r) {
    for (auto& v : acc) v = _mm512_dpbusd_epi32(v, w, a);
  }
  __m512i sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm512_add_epi32(sum, acc[i]);
  *sink = static_cast<float>(_mm512_reduce_add_epi32(sum));
  return static_cast<double>(rounds) * 12 * 64 * 2;
}

double fma(std::size_t rounds, float* sink) {
  __m512 acc[12];
  for (int i = 0; i < 12; ++i) acc[i] = _mm512_set1_ps(static_cast<float>(i));
  const __m512 half = _mm512_set1_ps(0.5f);
  for (std::size_t r = 0; r < rounds; ++r) {
    for (auto& v : acc) v = _mm512_fmadd_ps(v, half, half);
  }
  __m512 sum = acc[0];
  for (int i = 1; i < 12; ++i) sum = _mm512_add_ps(sum, acc[i]);
  *sink = _mm512_cvtss_f32(sum);
  return static_cast<double>(rounds) * 12 * 16 * 2;
}

}  // namespace baton::bench::avx512
