#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <ctime>

#include "runtime/base/time.h"

namespace baton {

// Sleeping on a word of memory that several processes map. Both may be called from any thread.

// Until somebody wakes this word, the time is over, or for no reason; at once if it is not
// `expected`.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Micros at_most_us) {
  timespec time{};
  time.tv_sec = at_most_us / kSecond;
  time.tv_nsec = at_most_us % kSecond * 1000;
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &time, nullptr, 0);
}

inline void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace baton
