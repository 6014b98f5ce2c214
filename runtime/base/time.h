#pragma once

#include <cstdint>

namespace baton {

// Microseconds of a steady clock with an arbitrary start; virtual in the simulator. Instants of two
// processes are never compared: what crosses a process is a remaining time.
using Micros = int64_t;

inline constexpr Micros kMillisecond = 1'000;
inline constexpr Micros kSecond = 1'000'000;
inline constexpr Micros kNever = INT64_MAX;

}  // namespace baton
