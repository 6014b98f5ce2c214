#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace baton {

struct TeamOptions {
  int threads = 1;  // with the caller of run(), >= 1
  // Pin thread i to the (first_core + i)-th core that the process may use, and spin in barriers.
  // Only where each thread has a core of its own: cores shared with other ranks must not pin.
  bool pin = false;
  int first_core = 0;
  // Spin for a moment in barriers before blocking, also without pinning: where there are at least
  // as many cores as threads that compute, though loops may share them.
  bool spin = false;
};

// The compute team: owns threads - 1 worker threads; the thread that calls run() is number 0 and
// always the same one. Within run() the threads meet in barrier(), spinning if asked to; between
// runs the workers block. Threads compute in the mode of fp_mode.h.
class Team {
 public:
  explicit Team(const TeamOptions& options);
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return threads_; }
  bool pinned() const { return pinned_; }  // false also if there are too few cores

  // Calls work(thread, n) on every thread, thread 0 on the caller; returns when all returned. One
  // call is one step: begin it rarely, and meet in barrier() within. Work must not throw.
  template <class F>
  void run(F&& work) {
    using Work = std::remove_reference_t<F>;
    run_raw([](void* w, int thread, int n) { (*static_cast<Work*>(w))(thread, n); },
            const_cast<void*>(static_cast<const void*>(&work)));
  }

  // All threads of a run() must come here equally often. Writes before it are seen after it.
  void barrier() noexcept;

 private:
  using RawWork = void (*)(void*, int thread, int n);
  struct Worker;

  void run_raw(RawWork work, void* argument);
  void worker_main(int thread);
  void wait_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) const noexcept;

  int threads_;
  bool pinned_ = false;
  int spins_ = 0;  // looks at a barrier before blocking
  bool caller_pinned_ = false;
  RawWork work_ = nullptr;
  void* argument_ = nullptr;
  std::unique_ptr<int[]> cores_;  // of each thread; -1 if there is none
  std::unique_ptr<Worker[]> workers_;
  alignas(64) std::atomic<std::uint32_t> step_{0};     // raised to start a run
  alignas(64) std::atomic<std::uint32_t> arrived_{0};  // threads in the current barrier
  alignas(64) std::atomic<std::uint32_t> phase_{0};    // raised when a barrier opens
  alignas(64) std::atomic<bool> stopping_{false};
};

// The part of `count` items that thread `thread` of n takes: contiguous, sizes differ by one.
struct Share {
  std::size_t begin;
  std::size_t end;
};
inline Share share(std::size_t count, int thread, int n) {
  const auto t = static_cast<std::size_t>(thread);
  const auto total = static_cast<std::size_t>(n);
  return {count * t / total, count * (t + 1) / total};
}

}  // namespace baton
