#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/inline.h"

// The vector type in one 512-bit register.
namespace baton::avx512 {

struct VF {
  __m512 v;
};
struct VI {
  __m512i v;
};
struct VM {
  __mmask16 v;
};

BATON_INLINE __mmask16 first_lanes(int n) {
  return static_cast<__mmask16>(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

BATON_INLINE VF load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
BATON_INLINE VF load_part(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(first_lanes(n), p)};
}
BATON_INLINE void store(float* p, VF x) {
  _mm512_storeu_ps(p, x.v);
}
BATON_INLINE void store_part(float* p, VF x, int n) {
  _mm512_mask_storeu_ps(p, first_lanes(n), x.v);
}
BATON_INLINE VF splat(float x) {
  return {_mm512_set1_ps(x)};
}
BATON_INLINE VF add(VF a, VF b) {
  return {_mm512_add_ps(a.v, b.v)};
}
BATON_INLINE VF sub(VF a, VF b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
BATON_INLINE VF mul(VF a, VF b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
BATON_INLINE VF div(VF a, VF b) {
  return {_mm512_div_ps(a.v, b.v)};
}
BATON_INLINE VF fma(VF a, VF b, VF c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
BATON_INLINE VF vmax(VF a, VF b) {
  return {_mm512_max_ps(a.v, b.v)};
}
BATON_INLINE VF vmin(VF a, VF b) {
  return {_mm512_min_ps(a.v, b.v)};
}
BATON_INLINE VF swap_pairs(VF x) {
  return {_mm512_permute_ps(x.v, 0xb1)};
}

BATON_INLINE VI load_i(const void* p) {
  return {_mm512_loadu_si512(p)};
}
BATON_INLINE VI load_i_part(const void* p, int n) {
  return {_mm512_maskz_loadu_epi32(first_lanes(n), p)};
}
BATON_INLINE void store_i(std::int32_t* p, VI x) {
  _mm512_storeu_si512(p, x.v);
}
BATON_INLINE VI load_u16(const std::uint16_t* p) {
  return {_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
BATON_INLINE VI load_u16_part(const std::uint16_t* p, int n) {
  return {_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
BATON_INLINE void store_u16(std::uint16_t* p, VI x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x.v));
}
BATON_INLINE void store_i8(std::int8_t* p, VI x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x.v));
}
BATON_INLINE VI isplat(std::int32_t x) {
  return {_mm512_set1_epi32(x)};
}
BATON_INLINE VI iota() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
BATON_INLINE VI iadd(VI a, VI b) {
  return {_mm512_add_epi32(a.v, b.v)};
}
BATON_INLINE VI isub(VI a, VI b) {
  return {_mm512_sub_epi32(a.v, b.v)};
}
BATON_INLINE VI iand(VI a, VI b) {
  return {_mm512_and_si512(a.v, b.v)};
}
BATON_INLINE VI ior(VI a, VI b) {
  return {_mm512_or_si512(a.v, b.v)};
}
BATON_INLINE VI imax(VI a, VI b) {
  return {_mm512_max_epi32(a.v, b.v)};
}
BATON_INLINE VI imin(VI a, VI b) {
  return {_mm512_min_epi32(a.v, b.v)};
}
template <int N>
BATON_INLINE VI shl(VI a) {
  return {_mm512_slli_epi32(a.v, N)};
}
template <int N>
BATON_INLINE VI shr(VI a) {
  return {_mm512_srli_epi32(a.v, N)};
}
template <int N>
BATON_INLINE VI sar(VI a) {
  return {_mm512_srai_epi32(a.v, N)};
}
BATON_INLINE VI shr_by(VI a, int n) {
  return {_mm512_srl_epi32(a.v, _mm_cvtsi32_si128(n))};
}

BATON_INLINE VI bits_of(VF x) {
  return {_mm512_castps_si512(x.v)};
}
BATON_INLINE VF from_bits(VI x) {
  return {_mm512_castsi512_ps(x.v)};
}
BATON_INLINE VF to_float(VI x) {
  return {_mm512_cvtepi32_ps(x.v)};
}
BATON_INLINE VI round_to_int(VF x) {
  return {_mm512_cvtps_epi32(x.v)};
}
BATON_INLINE VF from_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
BATON_INLINE VF from_f16_part(const std::uint16_t* p, int n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
BATON_INLINE void store_f16(std::uint16_t* p, VF x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
BATON_INLINE VF round_f16(VF x) {
  return {_mm512_cvtph_ps(_mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC))};
}

BATON_INLINE VM lt(VF a, VF b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)};
}
BATON_INLINE VM eq(VF a, VF b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
BATON_INLINE VM unordered(VF a) {
  return {_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q)};
}
BATON_INLINE VM ilt(VI a, VI b) {
  return {_mm512_cmplt_epi32_mask(a.v, b.v)};
}
BATON_INLINE VF select(VM m, VF yes, VF no) {
  return {_mm512_mask_blend_ps(m.v, no.v, yes.v)};
}
BATON_INLINE VI iselect(VM m, VI yes, VI no) {
  return {_mm512_mask_blend_epi32(m.v, no.v, yes.v)};
}
BATON_INLINE unsigned mask_bits(VM m) {
  return m.v;
}

// Sum of the lanes by the tree 8-4-2-1 (numerics.md rule 4), and the largest by the same tree.
BATON_INLINE float tree_sum(VF x) {
  const __m256 v8 = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
  const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
  return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}
BATON_INLINE float tree_max(VF x) {
  const __m256 v8 = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
  const __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
  return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
}

// Sum of the lanes, which must not overflow, and the largest.
BATON_INLINE std::int32_t lane_sum(VI x) {
  const __m256i v8 =
      _mm256_add_epi32(_mm512_castsi512_si256(x.v), _mm512_extracti64x4_epi64(x.v, 1));
  const __m128i v4 = _mm_add_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
  const __m128i v2 = _mm_add_epi32(v4, _mm_unpackhi_epi64(v4, v4));
  return _mm_cvtsi128_si32(_mm_add_epi32(v2, _mm_shuffle_epi32(v2, 1)));
}
BATON_INLINE std::int32_t lane_max(VI x) {
  const __m256i v8 =
      _mm256_max_epi32(_mm512_castsi512_si256(x.v), _mm512_extracti64x4_epi64(x.v, 1));
  const __m128i v4 = _mm_max_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
  const __m128i v2 = _mm_max_epi32(v4, _mm_unpackhi_epi64(v4, v4));
  return _mm_cvtsi128_si32(_mm_max_epi32(v2, _mm_shuffle_epi32(v2, 1)));
}

inline constexpr int kAccumulators = 24;

}  // namespace baton::avx512
