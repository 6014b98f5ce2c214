#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/inline.h"

// The vector type in two 256-bit registers: lanes 0..7 in a, 8..15 in b.
namespace baton::avx2 {

struct VF {
  __m256 a, b;
};
struct VI {
  __m256i a, b;
};
struct VM {
  __m256i a, b;  // all ones or all zeros per lane
};

BATON_INLINE VI isplat(std::int32_t x) {
  return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}
BATON_INLINE VI iota() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),
          _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
BATON_INLINE VM ilt(VI x, VI y) {
  return {_mm256_cmpgt_epi32(y.a, x.a), _mm256_cmpgt_epi32(y.b, x.b)};
}
BATON_INLINE VM first_lanes(int n) {
  return ilt(iota(), isplat(n));
}

BATON_INLINE VF load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
BATON_INLINE VF load_part(const float* p, int n) {
  const VM m = first_lanes(n);
  return {_mm256_maskload_ps(p, m.a), _mm256_maskload_ps(p + 8, m.b)};
}
BATON_INLINE void store(float* p, VF x) {
  _mm256_storeu_ps(p, x.a);
  _mm256_storeu_ps(p + 8, x.b);
}
BATON_INLINE void store_part(float* p, VF x, int n) {
  const VM m = first_lanes(n);
  _mm256_maskstore_ps(p, m.a, x.a);
  _mm256_maskstore_ps(p + 8, m.b, x.b);
}
BATON_INLINE VF splat(float x) {
  const __m256 v = _mm256_set1_ps(x);
  return {v, v};
}
BATON_INLINE VF add(VF x, VF y) {
  return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)};
}
BATON_INLINE VF sub(VF x, VF y) {
  return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)};
}
BATON_INLINE VF mul(VF x, VF y) {
  return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)};
}
BATON_INLINE VF div(VF x, VF y) {
  return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)};
}
BATON_INLINE VF fma(VF x, VF y, VF z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
BATON_INLINE VF vmax(VF x, VF y) {
  return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)};
}
BATON_INLINE VF vmin(VF x, VF y) {
  return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)};
}
BATON_INLINE VF swap_pairs(VF x) {
  return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)};
}

BATON_INLINE VI load_i(const void* p) {
  const __m256i* q = static_cast<const __m256i*>(p);
  return {_mm256_loadu_si256(q), _mm256_loadu_si256(q + 1)};
}
BATON_INLINE VI load_i_part(const void* p, int n) {
  const VM m = first_lanes(n);
  const int* q = static_cast<const int*>(p);
  return {_mm256_maskload_epi32(q, m.a), _mm256_maskload_epi32(q + 8, m.b)};
}
BATON_INLINE void store_i(std::int32_t* p, VI x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), x.a);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p + 8), x.b);
}
BATON_INLINE VI load_u16(const std::uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtepu16_epi32(_mm_loadu_si128(q)), _mm256_cvtepu16_epi32(_mm_loadu_si128(q + 1))};
}
BATON_INLINE VI load_u16_part(const std::uint16_t* p, int n) {
  alignas(32) std::uint16_t full[16] = {};
  for (int i = 0; i < n; ++i) full[i] = p[i];
  return load_u16(full);
}
// Lanes 0..15 as 16-bit values in order; values must fit in 16 unsigned bits.
BATON_INLINE __m256i narrow_u16(VI x) {
  const __m256i mixed = _mm256_packus_epi32(x.a, x.b);
  return _mm256_permute4x64_epi64(mixed, 0xd8);
}
BATON_INLINE void store_u16(std::uint16_t* p, VI x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_u16(x));
}
// Values must fit in 8 signed bits.
BATON_INLINE void store_i8(std::int8_t* p, VI x) {
  const __m256i mixed = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
  const __m128i bytes =
      _mm_packs_epi16(_mm256_castsi256_si128(mixed), _mm256_extracti128_si256(mixed, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
BATON_INLINE VI iadd(VI x, VI y) {
  return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
}
BATON_INLINE VI isub(VI x, VI y) {
  return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
}
BATON_INLINE VI iand(VI x, VI y) {
  return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
}
BATON_INLINE VI ior(VI x, VI y) {
  return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)};
}
BATON_INLINE VI imax(VI x, VI y) {
  return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
}
BATON_INLINE VI imin(VI x, VI y) {
  return {_mm256_min_epi32(x.a, y.a), _mm256_min_epi32(x.b, y.b)};
}
template <int N>
BATON_INLINE VI shl(VI x) {
  return {_mm256_slli_epi32(x.a, N), _mm256_slli_epi32(x.b, N)};
}
template <int N>
BATON_INLINE VI shr(VI x) {
  return {_mm256_srli_epi32(x.a, N), _mm256_srli_epi32(x.b, N)};
}
template <int N>
BATON_INLINE VI sar(VI x) {
  return {_mm256_srai_epi32(x.a, N), _mm256_srai_epi32(x.b, N)};
}
BATON_INLINE VI shr_by(VI x, int n) {
  const __m128i count = _mm_cvtsi32_si128(n);
  return {_mm256_srl_epi32(x.a, count), _mm256_srl_epi32(x.b, count)};
}

BATON_INLINE VI bits_of(VF x) {
  return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)};
}
BATON_INLINE VF from_bits(VI x) {
  return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)};
}
BATON_INLINE VF to_float(VI x) {
  return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)};
}
BATON_INLINE VI round_to_int(VF x) {
  return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)};
}
BATON_INLINE VF from_f16(const std::uint16_t* p) {
  const __m128i* q = reinterpret_cast<const __m128i*>(p);
  return {_mm256_cvtph_ps(_mm_loadu_si128(q)), _mm256_cvtph_ps(_mm_loadu_si128(q + 1))};
}
BATON_INLINE VF from_f16_part(const std::uint16_t* p, int n) {
  alignas(32) std::uint16_t full[16] = {};
  for (int i = 0; i < n; ++i) full[i] = p[i];
  return from_f16(full);
}
BATON_INLINE void store_f16(std::uint16_t* p, VF x) {
  __m128i* q = reinterpret_cast<__m128i*>(p);
  _mm_storeu_si128(q, _mm256_cvtps_ph(x.a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  _mm_storeu_si128(q + 1, _mm256_cvtps_ph(x.b, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
BATON_INLINE VF round_f16(VF x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_cvtph_ps(_mm256_cvtps_ph(x.a, kMode)),
          _mm256_cvtph_ps(_mm256_cvtps_ph(x.b, kMode))};
}

BATON_INLINE VM lt(VF x, VF y) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
}
BATON_INLINE VM eq(VF x, VF y) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, y.a, _CMP_EQ_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, y.b, _CMP_EQ_OQ))};
}
BATON_INLINE VM unordered(VF x) {
  return {_mm256_castps_si256(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q)),
          _mm256_castps_si256(_mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))};
}
BATON_INLINE VF select(VM m, VF yes, VF no) {
  return {_mm256_blendv_ps(no.a, yes.a, _mm256_castsi256_ps(m.a)),
          _mm256_blendv_ps(no.b, yes.b, _mm256_castsi256_ps(m.b))};
}
BATON_INLINE VI iselect(VM m, VI yes, VI no) {
  return {_mm256_blendv_epi8(no.a, yes.a, m.a), _mm256_blendv_epi8(no.b, yes.b, m.b)};
}
BATON_INLINE unsigned mask_bits(VM m) {
  const auto low = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(m.a)));
  const auto high = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(m.b)));
  return low | high << 8;
}

// Sum of the lanes by the tree 8-4-2-1 (numerics.md rule 4), and the largest by the same tree.
BATON_INLINE float tree_sum(VF x) {
  const __m256 v8 = _mm256_add_ps(x.a, x.b);
  const __m128 v4 = _mm_add_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
  const __m128 v2 = _mm_add_ps(v4, _mm_movehl_ps(v4, v4));
  return _mm_cvtss_f32(_mm_add_ss(v2, _mm_movehdup_ps(v2)));
}
BATON_INLINE float tree_max(VF x) {
  const __m256 v8 = _mm256_max_ps(x.a, x.b);
  const __m128 v4 = _mm_max_ps(_mm256_castps256_ps128(v8), _mm256_extractf128_ps(v8, 1));
  const __m128 v2 = _mm_max_ps(v4, _mm_movehl_ps(v4, v4));
  return _mm_cvtss_f32(_mm_max_ss(v2, _mm_movehdup_ps(v2)));
}

// Sum of the lanes, which must not overflow, and the largest.
BATON_INLINE std::int32_t lane_sum(VI x) {
  const __m256i v8 = _mm256_add_epi32(x.a, x.b);
  const __m128i v4 = _mm_add_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
  const __m128i v2 = _mm_add_epi32(v4, _mm_unpackhi_epi64(v4, v4));
  return _mm_cvtsi128_si32(_mm_add_epi32(v2, _mm_shuffle_epi32(v2, 1)));
}
BATON_INLINE std::int32_t lane_max(VI x) {
  const __m256i v8 = _mm256_max_epi32(x.a, x.b);
  const __m128i v4 = _mm_max_epi32(_mm256_castsi256_si128(v8), _mm256_extracti128_si256(v8, 1));
  const __m128i v2 = _mm_max_epi32(v4, _mm_unpackhi_epi64(v4, v4));
  return _mm_cvtsi128_si32(_mm_max_epi32(v2, _mm_shuffle_epi32(v2, 1)));
}

inline constexpr int kAccumulators = 6;

}  // namespace baton::avx2
