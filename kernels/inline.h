#pragma once

#include <utility>

// Helpers of kernel headers are forced inline: files compiled for AVX-512 include them too, and an
// out-of-line copy of theirs must never be the one that the linker keeps.
#define BATON_INLINE [[gnu::always_inline]] inline

// Keeps a pointer in one register with fixed displacements from it. g++ 12 else makes an induction
// variable of every address in an unrolled loop and spills them.
#define BATON_KEEP_POINTER(p) asm volatile("" : "+r"(p))
// Has a sum of vectors computed here. g++ 12 else puts off the additions of an unrolled loop until
// all of its products are there, which then do not fit into registers.
#define BATON_SETTLE(v) asm volatile("" : "+x"(v))

// Calls f with 0 .. N - 1 as constants: loops that g++ 12 unrolls too late leave the arrays that
// they walk over in memory. Sanitizers multiply what is unrolled: a loop for them, or files take
// minutes to compile.
#define BATON_INLINE_LAMBDA __attribute__((always_inline))
namespace baton {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
template <int N, class F>
BATON_INLINE void each(const F& f) {
  for (int i = 0; i < N; ++i) f(i);
}
#else
template <int N, class F>
BATON_INLINE void each(const F& f) {
  [&]<int... I>(std::integer_sequence<int, I...>) BATON_INLINE_LAMBDA {
    (f(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}
#endif
}  // namespace baton
