#pragma once

#include <cstddef>
#include <cstdint>

// Sixteen lanes of f32 (VF) or i32 (VI) and a mask of them (VM), with the same operations, the
// same order of sums and so the same bits on every instruction set. The file that includes this
// decides by its compiler flags which one it gets; everything lives in the namespace BATON_ISA_NS.
#if defined(__AVX512F__)
#define BATON_ISA_NS avx512
#include "kernels/cpu/vec_avx512.h"
#elif defined(__AVX2__)
#define BATON_ISA_NS avx2
#include "kernels/cpu/vec_avx2.h"
#else
#define BATON_ISA_NS scalar
#include "kernels/cpu/vec_scalar.h"
#endif

namespace baton::BATON_ISA_NS {

inline constexpr int kLanes = 16;

BATON_INLINE VF zero() {
  return splat(0.0f);
}
BATON_INLINE float to_scalar_bits(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
inline constexpr float kInfinity = __builtin_inff();

// f32 -> bf16 in the low half of each lane; round to nearest even, NaN stays a quiet NaN,
// subnormals become zero.
BATON_INLINE VI to_bf16(VF x) {
  const VI bits = bits_of(x);
  const VI magnitude = iand(bits, isplat(0x7fffffff));
  const VI odd = iand(shr<16>(bits), isplat(1));
  VI rounded = shr<16>(iadd(bits, iadd(odd, isplat(0x7fff))));
  rounded = iselect(ilt(isplat(0x7f800000), magnitude), ior(shr<16>(bits), isplat(0x40)), rounded);
  return iselect(ilt(magnitude, isplat(0x00800000)), iand(shr<16>(bits), isplat(0x8000)), rounded);
}
BATON_INLINE VF from_bf16(VI low_half) {
  return from_bits(shl<16>(low_half));
}

// Calls step(offset, lanes) for each 16 of n, the last with fewer.
template <class Step>
BATON_INLINE void each_lanes(std::size_t n, const Step& step) {
  std::size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) step(i, kLanes);
  if (i < n) step(i, static_cast<int>(n - i));
}
BATON_INLINE VF load_lanes(const float* p, int n) {
  return n == kLanes ? load(p) : load_part(p, n);
}
BATON_INLINE void store_lanes(float* p, VF x, int n) {
  if (n == kLanes) {
    store(p, x);
  } else {
    store_part(p, x, n);
  }
}

}  // namespace baton::BATON_ISA_NS
