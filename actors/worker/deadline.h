#pragma once

#include "runtime/base/time.h"

// Deadlines travel as the time that remains and are kept as instants of the own clock.

namespace baton {

constexpr Micros deadline_after(Micros now, Micros remaining) {
  return remaining >= kNever - now ? kNever : now + remaining;
}

constexpr Micros remaining_until(Micros deadline, Micros now) {
  if (deadline == kNever) return kNever;
  return deadline > now ? deadline - now : 0;
}

}  // namespace baton
