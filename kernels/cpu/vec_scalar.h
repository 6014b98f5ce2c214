#pragma once

#include <xmmintrin.h>

#include <cstdint>

#include "kernels/formats.h"
#include "kernels/inline.h"

// Sanitizers multiply the code of every loop: leave inlining to the compiler, or files take
// minutes.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define BATON_SCALAR_INLINE inline
#else
#define BATON_SCALAR_INLINE BATON_INLINE
#endif

// The vector type as plain loops over floats: the reference.
namespace baton::scalar {

struct VF {
  float v[16];
};
struct VI {
  std::int32_t v[16];
};
struct VM {
  bool v[16];
};

#define BATON_LANES for (int i = 0; i < 16; ++i)

BATON_SCALAR_INLINE VF load(const float* p) {
  VF r;
  BATON_LANES r.v[i] = p[i];
  return r;
}
BATON_SCALAR_INLINE VF load_part(const float* p, int n) {
  VF r;
  BATON_LANES r.v[i] = i < n ? p[i] : 0.0f;
  return r;
}
BATON_SCALAR_INLINE void store(float* p, VF x) {
  BATON_LANES p[i] = x.v[i];
}
BATON_SCALAR_INLINE void store_part(float* p, VF x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.v[i];
}
BATON_SCALAR_INLINE VF splat(float x) {
  VF r;
  BATON_LANES r.v[i] = x;
  return r;
}
BATON_SCALAR_INLINE VF add(VF a, VF b) {
  BATON_LANES a.v[i] = a.v[i] + b.v[i];
  return a;
}
BATON_SCALAR_INLINE VF sub(VF a, VF b) {
  BATON_LANES a.v[i] = a.v[i] - b.v[i];
  return a;
}
BATON_SCALAR_INLINE VF mul(VF a, VF b) {
  BATON_LANES a.v[i] = a.v[i] * b.v[i];
  return a;
}
BATON_SCALAR_INLINE VF div(VF a, VF b) {
  BATON_LANES a.v[i] = a.v[i] / b.v[i];
  return a;
}
BATON_SCALAR_INLINE VF fma(VF a, VF b, VF c) {
  BATON_LANES a.v[i] = __builtin_fmaf(a.v[i], b.v[i], c.v[i]);
  return a;
}
// b where either is NaN, as the processor's instruction.
BATON_SCALAR_INLINE VF vmax(VF a, VF b) {
  BATON_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
BATON_SCALAR_INLINE VF vmin(VF a, VF b) {
  BATON_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
BATON_SCALAR_INLINE VF swap_pairs(VF x) {
  VF r;
  BATON_LANES r.v[i] = x.v[i ^ 1];
  return r;
}

BATON_SCALAR_INLINE VI load_i(const void* p) {
  VI r;
  __builtin_memcpy(r.v, p, 64);
  return r;
}
BATON_SCALAR_INLINE VI load_i_part(const void* p, int n) {
  VI r = {};
  __builtin_memcpy(r.v, p, static_cast<std::size_t>(n) * 4);
  return r;
}
BATON_SCALAR_INLINE void store_i(std::int32_t* p, VI x) {
  __builtin_memcpy(p, x.v, 64);
}
BATON_SCALAR_INLINE VI load_u16(const std::uint16_t* p) {
  VI r;
  BATON_LANES r.v[i] = p[i];
  return r;
}
BATON_SCALAR_INLINE VI load_u16_part(const std::uint16_t* p, int n) {
  VI r;
  BATON_LANES r.v[i] = i < n ? p[i] : 0;
  return r;
}
BATON_SCALAR_INLINE void store_u16(std::uint16_t* p, VI x) {
  BATON_LANES p[i] = static_cast<std::uint16_t>(x.v[i]);
}
// Low bytes of the lanes.
BATON_SCALAR_INLINE void store_i8(std::int8_t* p, VI x) {
  BATON_LANES p[i] = static_cast<std::int8_t>(x.v[i]);
}
BATON_SCALAR_INLINE VI isplat(std::int32_t x) {
  VI r;
  BATON_LANES r.v[i] = x;
  return r;
}
BATON_SCALAR_INLINE VI iota() {
  VI r;
  BATON_LANES r.v[i] = i;
  return r;
}
BATON_SCALAR_INLINE VI iadd(VI a, VI b) {
  BATON_LANES a.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) +
                                                 static_cast<std::uint32_t>(b.v[i]));
  return a;
}
BATON_SCALAR_INLINE VI isub(VI a, VI b) {
  BATON_LANES a.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) -
                                                 static_cast<std::uint32_t>(b.v[i]));
  return a;
}
BATON_SCALAR_INLINE VI iand(VI a, VI b) {
  BATON_LANES a.v[i] &= b.v[i];
  return a;
}
BATON_SCALAR_INLINE VI ior(VI a, VI b) {
  BATON_LANES a.v[i] |= b.v[i];
  return a;
}
BATON_SCALAR_INLINE VI imax(VI a, VI b) {
  BATON_LANES a.v[i] = a.v[i] > b.v[i] ? a.v[i] : b.v[i];
  return a;
}
BATON_SCALAR_INLINE VI imin(VI a, VI b) {
  BATON_LANES a.v[i] = a.v[i] < b.v[i] ? a.v[i] : b.v[i];
  return a;
}
template <int N>
BATON_SCALAR_INLINE VI shl(VI a) {
  BATON_LANES a.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) << N);
  return a;
}
template <int N>
BATON_SCALAR_INLINE VI shr(VI a) {
  BATON_LANES a.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) >> N);
  return a;
}
template <int N>
BATON_SCALAR_INLINE VI sar(VI a) {
  BATON_LANES a.v[i] >>= N;
  return a;
}
BATON_SCALAR_INLINE VI shr_by(VI a, int n) {
  BATON_LANES a.v[i] = static_cast<std::int32_t>(static_cast<std::uint32_t>(a.v[i]) >> n);
  return a;
}

BATON_SCALAR_INLINE VI bits_of(VF x) {
  return __builtin_bit_cast(VI, x);
}
BATON_SCALAR_INLINE VF from_bits(VI x) {
  return __builtin_bit_cast(VF, x);
}
BATON_SCALAR_INLINE VF to_float(VI x) {
  VF r;
  BATON_LANES r.v[i] = static_cast<float>(x.v[i]);
  return r;
}
// To nearest even; INT_MIN where the value does not fit or is NaN.
BATON_SCALAR_INLINE VI round_to_int(VF x) {
  VI r;
  BATON_LANES r.v[i] = _mm_cvtss_si32(_mm_set_ss(x.v[i]));
  return r;
}
BATON_SCALAR_INLINE VF from_f16(const std::uint16_t* p) {
  VF r;
  BATON_LANES r.v[i] = f16_to_f32(p[i]);
  return r;
}
BATON_SCALAR_INLINE VF from_f16_part(const std::uint16_t* p, int n) {
  VF r;
  BATON_LANES r.v[i] = i < n ? f16_to_f32(p[i]) : 0.0f;
  return r;
}
BATON_SCALAR_INLINE void store_f16(std::uint16_t* p, VF x) {
  BATON_LANES p[i] = f32_to_f16(x.v[i]);
}
BATON_SCALAR_INLINE VF round_f16(VF x) {
  BATON_LANES x.v[i] = f16_to_f32(f32_to_f16(x.v[i]));
  return x;
}

BATON_SCALAR_INLINE VM lt(VF a, VF b) {
  VM r;
  BATON_LANES r.v[i] = a.v[i] < b.v[i];
  return r;
}
BATON_SCALAR_INLINE VM eq(VF a, VF b) {
  VM r;
  BATON_LANES r.v[i] = a.v[i] == b.v[i];
  return r;
}
BATON_SCALAR_INLINE VM unordered(VF a) {
  VM r;
  BATON_LANES r.v[i] = a.v[i] != a.v[i];
  return r;
}
BATON_SCALAR_INLINE VM ilt(VI a, VI b) {
  VM r;
  BATON_LANES r.v[i] = a.v[i] < b.v[i];
  return r;
}
BATON_SCALAR_INLINE VF select(VM m, VF yes, VF no) {
  BATON_LANES yes.v[i] = m.v[i] ? yes.v[i] : no.v[i];
  return yes;
}
BATON_SCALAR_INLINE VI iselect(VM m, VI yes, VI no) {
  BATON_LANES yes.v[i] = m.v[i] ? yes.v[i] : no.v[i];
  return yes;
}
// Bit i set where lane i is.
BATON_SCALAR_INLINE unsigned mask_bits(VM m) {
  unsigned r = 0;
  BATON_LANES r |= static_cast<unsigned>(m.v[i]) << i;
  return r;
}

// Sum of the lanes by the tree 8-4-2-1 (numerics.md rule 4), and the largest by the same tree.
BATON_SCALAR_INLINE float tree_sum(VF x) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] + x.v[i + half];
  }
  return x.v[0];
}
BATON_SCALAR_INLINE float tree_max(VF x) {
  for (int half = 8; half >= 1; half /= 2) {
    for (int i = 0; i < half; ++i) x.v[i] = x.v[i] > x.v[i + half] ? x.v[i] : x.v[i + half];
  }
  return x.v[0];
}
// Sum of the lanes, which must not overflow, and the largest.
BATON_SCALAR_INLINE std::int32_t lane_sum(VI x) {
  std::int32_t sum = 0;
  BATON_LANES sum += x.v[i];
  return sum;
}
BATON_SCALAR_INLINE std::int32_t lane_max(VI x) {
  std::int32_t best = x.v[0];
  BATON_LANES best = best > x.v[i] ? best : x.v[i];
  return best;
}

#undef BATON_SCALAR_INLINE
#undef BATON_LANES

// Accumulators that fit into registers: what unrolled loops aim at. Without vectors it is moot.
inline constexpr int kAccumulators = 8;

}  // namespace baton::scalar
