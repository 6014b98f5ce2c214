#pragma once

#include <time.h>

#include <algorithm>
#include <chrono>
#include <vector>

namespace baton::bench {

struct Timing {
  double best_s = 0;
  double median_s = 0;
  double cpu_s = 0;  // least processor time of the process: does not count what others took
};

inline double processor_s() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// Runs work once to warm up, then until both `repeats` and `seconds_min` are reached.
template <class Work>
Timing measure(int repeats, double seconds_min, Work&& work) {
  using Clock = std::chrono::steady_clock;
  work();
  std::vector<double> times;
  double total = 0;
  double cpu_best = 1e9;
  while (static_cast<int>(times.size()) < repeats || total < seconds_min) {
    const double cpu_start = processor_s();
    const auto start = Clock::now();
    work();
    cpu_best = std::min(cpu_best, processor_s() - cpu_start);
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2], cpu_best};
}

}  // namespace baton::bench
