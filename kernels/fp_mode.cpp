#include "kernels/fp_mode.h"

#include <xmmintrin.h>

namespace baton {
namespace {

constexpr unsigned kMasks = 0x1f80;  // every exception masked, round to nearest even
constexpr unsigned kFlushToZero = 0x8000;
constexpr unsigned kSubnormalsAreZero = 0x0040;
constexpr unsigned kMode = kMasks | kFlushToZero | kSubnormalsAreZero;
constexpr unsigned kStatusFlags = 0x003f;

}  // namespace

void set_fp_mode() noexcept {
  _mm_setcsr(kMode);
}

bool fp_mode_is_set() noexcept {
  return (_mm_getcsr() & ~kStatusFlags) == kMode;
}

FpModeScope::FpModeScope() noexcept : saved_(_mm_getcsr()) {
  set_fp_mode();
}
FpModeScope::~FpModeScope() {
  _mm_setcsr(saved_);
}

}  // namespace baton
