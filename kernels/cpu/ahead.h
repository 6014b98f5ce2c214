#pragma once

#include <xmmintrin.h>

#include <cstddef>

#include "kernels/inline.h"

namespace baton {

// A hint that a line of memory is read soon. Into the second-level cache: the first one is full of
// what is in use, and has few places for what is on its way.
BATON_INLINE void ask_for(const std::byte* p) {
  _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1);
}

// Asks for memory that is read soon, a little at each step, so that it comes while the processor
// computes. Anything may lie behind `end`, or nothing: it is only a hint.
class Ahead {
 public:
  // All of [begin, begin + bytes) within so many steps.
  BATON_INLINE Ahead(const std::byte* begin, std::size_t bytes, std::size_t steps)
      : at_(begin), end_(begin + bytes), lines_(steps > 0 ? (bytes / kLine + steps) / steps : 0) {}

  BATON_INLINE void step() {
    for (std::size_t i = 0; i < lines_ && at_ < end_; ++i, at_ += kLine) ask_for(at_);
  }

 private:
  static constexpr std::size_t kLine = 64;
  const std::byte* at_;
  const std::byte* end_;
  std::size_t lines_;
};

}  // namespace baton
