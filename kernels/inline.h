#pragma once

// Helpers of kernel headers are forced inline: files compiled for AVX-512 include them too, and an
// out-of-line copy of theirs must never be the one that the linker keeps.
#define BATON_INLINE [[gnu::always_inline]] inline

// Keeps a pointer in one register with fixed displacements from it. g++ 12 else makes an induction
// variable of every address in an unrolled loop and spills them.
#define BATON_KEEP_POINTER(p) asm volatile("" : "+r"(p))
// Has a sum of vectors computed here. g++ 12 else puts off the additions of an unrolled loop until
// all of its products are there, which then do not fit into registers.
#define BATON_SETTLE(v) asm volatile("" : "+x"(v))
