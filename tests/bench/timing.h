#pragma once

#include <algorithm>
#include <chrono>
#include <vector>

namespace baton::bench {

struct Timing {
  double best_s = 0;
  double median_s = 0;
};

// Runs work once to warm up, then until both `repeats` and `seconds_min` are reached.
template <class Work>
Timing measure(int repeats, double seconds_min, Work&& work) {
  using Clock = std::chrono::steady_clock;
  work();
  std::vector<double> times;
  double total = 0;
  while (static_cast<int>(times.size()) < repeats || total < seconds_min) {
    const auto start = Clock::now();
    work();
    times.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    total += times.back();
  }
  std::sort(times.begin(), times.end());
  return {times.front(), times[times.size() / 2]};
}

}  // namespace baton::bench
