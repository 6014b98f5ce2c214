#include "kernels/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/ahead.h"

// Sanitizers see ordinary copies only.
#if defined(__SSE2__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
#include <emmintrin.h>
#define BATON_STREAMS 1
#else
#define BATON_STREAMS 0
#endif

namespace baton {
namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAhead = 4096;  // how far ahead of a copy its source is asked for

}  // namespace

void stream_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept {
#if BATON_STREAMS
  const std::size_t head =
      std::min<std::size_t>(bytes, -reinterpret_cast<std::uintptr_t>(target) % kLine);
  std::memcpy(target, source, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    const auto* from = reinterpret_cast<const __m128i*>(source + at);
    auto* to = reinterpret_cast<__m128i*>(target + at);
    const __m128i a = _mm_loadu_si128(from);
    const __m128i b = _mm_loadu_si128(from + 1);
    const __m128i c = _mm_loadu_si128(from + 2);
    const __m128i d = _mm_loadu_si128(from + 3);
    _mm_stream_si128(to, a);
    _mm_stream_si128(to + 1, b);
    _mm_stream_si128(to + 2, c);
    _mm_stream_si128(to + 3, d);
  }
  std::memcpy(target + at, source + at, bytes - at);
#else
  std::memcpy(target, source, bytes);
#endif
}

void stream_fence() noexcept {
#if BATON_STREAMS
  _mm_sfence();
#endif
}

void gather_copy(std::byte* target, const std::byte* source, std::size_t bytes,
                 std::size_t readable) noexcept {
  std::size_t at = 0;
  for (; at + 4 * kLine <= bytes; at += 4 * kLine) {
    if (at + kAhead + 4 * kLine <= readable) {
      for (std::size_t line = 0; line < 4; ++line) {
        ask_for(source + at + kAhead + line * kLine);
      }
    }
    std::memcpy(target + at, source + at, 4 * kLine);
  }
  std::memcpy(target + at, source + at, bytes - at);
}

void fetch_ahead(const std::byte* source, std::size_t bytes) noexcept {
  for (std::size_t at = 0; at < bytes; at += kLine) ask_for(source + at);
}

}  // namespace baton
