#pragma once

#include <immintrin.h>

#include <cstddef>

#include "kernels/inline.h"
#include "kernels/ops.h"

// The int8 linear layer of each instruction set (Ops::linear_q8); written by hand per set, since
// here the choice of instructions is the point.
namespace baton {

#define BATON_DECLARE_LINEAR_Q8(isa)                                                         \
  namespace isa {                                                                            \
  void linear_q8(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,            \
                 std::size_t tile_begin, std::size_t tile_end, std::byte* scratch) noexcept; \
  }
BATON_DECLARE_LINEAR_Q8(scalar)
BATON_DECLARE_LINEAR_Q8(avx2)
BATON_DECLARE_LINEAR_Q8(avx512)
#undef BATON_DECLARE_LINEAR_Q8

// Bytes of one block of 32 columns of one tile (packed.h).
inline constexpr std::size_t kTileBlockQ40 = 256 + 32;
inline constexpr std::size_t kTileBlockQ41 = 256 + 64;
inline constexpr std::size_t kTileBlockQ80 = 512 + 32;

// Asks for memory that is read soon, a little at each step, so that it comes while the processor
// computes. Anything may lie behind `end`, or nothing: it is only a hint.
class Ahead {
 public:
  Ahead() = default;
  // All of [begin, begin + bytes) within so many steps.
  Ahead(const std::byte* begin, std::size_t bytes, std::size_t steps)
      : at_(begin), end_(begin + bytes), lines_((bytes / kLine + steps) / steps) {}

  BATON_INLINE void step() {
    for (std::size_t i = 0; i < lines_ && at_ < end_; ++i, at_ += kLine) {
      _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T1);
    }
  }

 private:
  static constexpr std::size_t kLine = 64;
  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
  std::size_t lines_ = 0;
};

}  // namespace baton
