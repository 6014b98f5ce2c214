#pragma once

#include "kernels/cpu/vec.h"

// exp, log, sin, cos, sigmoid over the vector type: the only ones that numbers are computed with.
// Largest errors against double precision over the whole domain, from tests/unit/kernels/math_test:
//   exp      8.5e-8 relative; exp(0) = 1, exp(-inf) = 0, below -87.33654 zero, above 88.72283 inf
//   log      8.5e-8 relative or absolute; log(1) = 0, log(0) = log(subnormal) = -inf, log(< 0) =
//   NaN sin,cos  9.5e-8 absolute for |x| <= 65,536; meaningless beyond sigmoid  1.6e-7 relative
// NaN stays NaN.
namespace baton::BATON_ISA_NS {

// Nearest integer to x as a float (ties to even) and as an integer; |x| < 2^22.
struct Rounded {
  VF value;
  VI integer;
};
BATON_INLINE Rounded split_integer(VF x_times_scale_plus_magic) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23
  return {sub(x_times_scale_plus_magic, splat(kMagic)),
          isub(bits_of(x_times_scale_plus_magic), isplat(0x4b400000))};
}
BATON_INLINE Rounded nearest(VF x, float scale) {
  return split_integer(fma(x, splat(scale), splat(12582912.0f)));
}

// What exp needs of x: the mantissa part e^(x - n ln 2), near 1, and n.
struct ExpParts {
  VF mantissa;
  VI exponent;
};
BATON_INLINE ExpParts exp_parts(VF x) {
  const Rounded n = nearest(x, 1.44269504088896341f);
  VF r = fma(n.value, splat(-0.693359375f), x);
  r = fma(n.value, splat(2.12194440e-4f), r);
  VF p = splat(1.9875691500e-4f);
  p = fma(p, r, splat(1.3981999507e-3f));
  p = fma(p, r, splat(8.3334519073e-3f));
  p = fma(p, r, splat(4.1665795894e-2f));
  p = fma(p, r, splat(1.6666665459e-1f));
  p = fma(p, r, splat(5.0000001201e-1f));
  return {add(fma(p, mul(r, r), r), splat(1.0f)), n.integer};
}
BATON_INLINE VF power_of_two(VI n) {
  return from_bits(shl<23>(iadd(n, isplat(127))));
}

inline constexpr float kExpLow = -87.33654f;  // below: less than the smallest normal number

BATON_INLINE VF exp_v(VF x) {
  const ExpParts e = exp_parts(vmin(splat(88.72284f), vmax(splat(kExpLow), x)));  // NaN passes
  // 2^n in two factors, so that n = 128 overflows only where the product does.
  const VI half = sar<1>(e.exponent);
  const VF scaled = mul(mul(e.mantissa, power_of_two(half)), power_of_two(isub(e.exponent, half)));
  const VF result = select(lt(x, splat(kExpLow)), zero(), scaled);
  return select(lt(splat(88.72283f), x), splat(kInfinity), result);
}

// exp_v for x <= 0, with the same bits.
BATON_INLINE VF exp_nonpositive(VF x) {
  const ExpParts e = exp_parts(vmax(splat(kExpLow), x));
  return select(lt(x, splat(kExpLow)), zero(), mul(e.mantissa, power_of_two(e.exponent)));
}

// exp_nonpositive of N vectors at a time, in place: chains of dependent steps side by side, because
// the processor does not look far enough ahead to overlap one vector's with the next one's.
template <int N>
BATON_INLINE void exp_nonpositive_all(VF (&x)[N]) {
  VF n[N];
  VF r[N];
  VF p[N];
  VI power[N];
  const auto all = [](const auto& step) BATON_INLINE_LAMBDA { each<N>(step); };
  all([&](auto i) BATON_INLINE_LAMBDA { r[i] = vmax(splat(kExpLow), x[i]); });
  all([&](auto i) BATON_INLINE_LAMBDA {
    const Rounded rounded = nearest(r[i], 1.44269504088896341f);
    n[i] = rounded.value;
    power[i] = shl<23>(iadd(rounded.integer, isplat(127)));
  });
  all([&](auto i) BATON_INLINE_LAMBDA { r[i] = fma(n[i], splat(-0.693359375f), r[i]); });
  all([&](auto i) BATON_INLINE_LAMBDA { r[i] = fma(n[i], splat(2.12194440e-4f), r[i]); });
  all([&](auto i) BATON_INLINE_LAMBDA {
    p[i] = fma(splat(1.9875691500e-4f), r[i], splat(1.3981999507e-3f));
  });
  all([&](auto i) BATON_INLINE_LAMBDA { p[i] = fma(p[i], r[i], splat(8.3334519073e-3f)); });
  all([&](auto i) BATON_INLINE_LAMBDA { p[i] = fma(p[i], r[i], splat(4.1665795894e-2f)); });
  all([&](auto i) BATON_INLINE_LAMBDA { p[i] = fma(p[i], r[i], splat(1.6666665459e-1f)); });
  all([&](auto i) BATON_INLINE_LAMBDA { p[i] = fma(p[i], r[i], splat(5.0000001201e-1f)); });
  all([&](auto i) BATON_INLINE_LAMBDA { p[i] = fma(p[i], mul(r[i], r[i]), r[i]); });
  all([&](auto i) BATON_INLINE_LAMBDA { p[i] = mul(add(p[i], splat(1.0f)), from_bits(power[i])); });
  all([&](auto i) BATON_INLINE_LAMBDA { x[i] = select(lt(x[i], splat(kExpLow)), zero(), p[i]); });
}

BATON_INLINE VF log_v(VF x) {
  const VI bits = bits_of(x);
  VI exponent = isub(shr<23>(bits), isplat(126));
  VF m = from_bits(ior(iand(bits, isplat(0x007fffff)), isplat(0x3f000000)));  // [0.5, 1)
  const VM small = lt(m, splat(0.707106781186547524f));
  exponent = iselect(small, isub(exponent, isplat(1)), exponent);
  m = sub(select(small, add(m, m), m), splat(1.0f));
  const VF e = to_float(exponent);
  const VF z = mul(m, m);
  VF p = splat(7.0376836292e-2f);
  p = fma(p, m, splat(-1.1514610310e-1f));
  p = fma(p, m, splat(1.1676998740e-1f));
  p = fma(p, m, splat(-1.2420140846e-1f));
  p = fma(p, m, splat(1.4249322787e-1f));
  p = fma(p, m, splat(-1.6668057665e-1f));
  p = fma(p, m, splat(2.0000714765e-1f));
  p = fma(p, m, splat(-2.4999993993e-1f));
  p = fma(p, m, splat(3.3333331174e-1f));
  VF y = mul(mul(p, m), z);
  y = fma(e, splat(-2.12194440e-4f), y);
  y = fma(z, splat(-0.5f), y);
  VF result = fma(e, splat(0.693359375f), add(m, y));
  result = select(lt(x, from_bits(isplat(0x00800000))), splat(-kInfinity), result);
  result = select(lt(x, zero()), from_bits(isplat(0x7fc00000)), result);
  result = select(eq(x, splat(kInfinity)), x, result);
  return select(unordered(x), x, result);
}

// Sine of x + quarter * pi / 2.
BATON_INLINE VF sin_shifted(VF x, int quarter) {
  const Rounded n = nearest(x, 0.636619772367581343f);
  VF r = fma(n.value, splat(-1.57079637050628662109375f), x);
  r = fma(n.value, splat(4.37113900018624283e-8f), r);
  r = fma(n.value, splat(-1.71512451000588e-15f), r);
  const VF z = mul(r, r);
  VF s = splat(-1.9515295891e-4f);
  s = fma(s, z, splat(8.3321608736e-3f));
  s = fma(s, z, splat(-1.6666654611e-1f));
  s = fma(mul(s, z), r, r);
  VF c = splat(2.443315711809948e-5f);
  c = fma(c, z, splat(-1.388731625493765e-3f));
  c = fma(c, z, splat(4.166664568298827e-2f));
  c = fma(mul(c, z), z, fma(z, splat(-0.5f), splat(1.0f)));
  const VI quadrant = iadd(n.integer, isplat(quarter));
  const VM use_cos = ilt(isplat(0), iand(quadrant, isplat(1)));
  const VI sign = shl<30>(iand(quadrant, isplat(2)));
  const VI magnitude = bits_of(select(use_cos, c, s));
  const VF result = from_bits(iadd(magnitude, sign));
  return select(unordered(r), r, result);
}
BATON_INLINE VF sin_v(VF x) {
  return sin_shifted(x, 0);
}
BATON_INLINE VF cos_v(VF x) {
  return sin_shifted(x, 1);
}

BATON_INLINE VF sigmoid_v(VF x) {
  return div(splat(1.0f), add(splat(1.0f), exp_v(sub(zero(), x))));
}

}  // namespace baton::BATON_ISA_NS
