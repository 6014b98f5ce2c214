#include "kernels/team.h"

#include <immintrin.h>
#include <pthread.h>
#include <sched.h>

#include <thread>

#include "kernels/fp_mode.h"

namespace baton {
namespace {

// A pinned thread spins this often (a few hundred microseconds) before it blocks even within a
// step: long for a barrier, short for a step in which a thread was descheduled.
constexpr int kSpinsPinned = 1 << 14;
constexpr int kSpinsShared = 1 << 11;

bool pin_this_thread(int core) {
  if (core < 0 || core >= CPU_SETSIZE) return false;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(core), &set);
  return pthread_setaffinity_np(pthread_self(), sizeof set, &set) == 0;
}

// The index-th core that this process may run on; -1 if there are not so many.
int allowed_core(int index) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return -1;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(static_cast<std::size_t>(core), &set) && index-- == 0) return core;
  }
  return -1;
}

}  // namespace

struct Team::Worker {
  std::thread thread;
};

Team::Team(const TeamOptions& options)
    : threads_(options.threads < 1 ? 1 : options.threads),
      pinned_(options.pin && allowed_core(options.first_core + threads_ - 1) >= 0) {
  spins_ = pinned_ ? kSpinsPinned : options.spin ? kSpinsShared : 0;
  cores_ = std::make_unique<int[]>(static_cast<std::size_t>(threads_));
  for (int i = 0; i < threads_; ++i) cores_[i] = allowed_core(options.first_core + i);
  workers_ = std::make_unique<Worker[]>(static_cast<std::size_t>(threads_));
  for (int i = 1; i < threads_; ++i) {
    workers_[i].thread = std::thread([this, i] { worker_main(i); });
  }
}

Team::~Team() {
  stopping_.store(true, std::memory_order_relaxed);
  step_.fetch_add(1, std::memory_order_release);
  step_.notify_all();
  for (int i = 1; i < threads_; ++i) workers_[i].thread.join();
}

void Team::wait_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) const noexcept {
  for (int i = 0; i < spins_; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    _mm_pause();
  }
  while (value.load(std::memory_order_acquire) == old) value.wait(old, std::memory_order_acquire);
}

void Team::barrier() noexcept {
  const std::uint32_t phase = phase_.load(std::memory_order_relaxed);
  const auto all = static_cast<std::uint32_t>(threads_);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == all) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
    return;
  }
  wait_change(phase_, phase);
}

void Team::run_raw(RawWork work, void* argument) {
  if (pinned_ && !caller_pinned_) {
    caller_pinned_ = true;
    pin_this_thread(cores_[0]);
  }
  const FpModeScope mode;
  if (threads_ == 1) {
    work(argument, 0, 1);
    return;
  }
  work_ = work;
  argument_ = argument;
  step_.fetch_add(1, std::memory_order_release);
  step_.notify_all();
  work(argument, 0, threads_);
  barrier();
}

void Team::worker_main(int thread) {
  if (pinned_) pin_this_thread(cores_[thread]);
  set_fp_mode();
  for (std::uint32_t seen = 0;; ++seen) {
    // Idle: block, do not spin. Steps cannot overtake a worker, which ends each in barrier().
    while (step_.load(std::memory_order_acquire) == seen) {
      step_.wait(seen, std::memory_order_acquire);
    }
    if (stopping_.load(std::memory_order_relaxed)) return;
    work_(argument_, thread, threads_);
    barrier();
  }
}

}  // namespace baton
