#pragma once

#include <cstdint>

#include "runtime/base/hash.h"
#include "runtime/base/time.h"

namespace baton {

// The one source of chance in a simulated world: the same seed gives the same draws everywhere.
// (The standard library's distributions differ between libraries; these do not.)
class SimRandom {
 public:
  explicit SimRandom(uint64_t seed) : state_(mix64(seed)) {}

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    return mix64(state_);
  }
  // In [0, bound); 0 for bound 0.
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
  // In [low, high].
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<uint64_t>(high - low) + 1));
  }
  bool chance(double probability) {
    return static_cast<double>(next() >> 11) * 0x1p-53 < probability;
  }

 private:
  uint64_t state_;
};

}  // namespace baton
