#pragma once

// Helpers of kernel headers are forced inline: files compiled for AVX-512 include them too, and an
// out-of-line copy of theirs must never be the one that the linker keeps.
#define BATON_INLINE [[gnu::always_inline]] inline
