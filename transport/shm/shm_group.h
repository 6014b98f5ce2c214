#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/actor/collective.h"
#include "runtime/base/time.h"
#include "transport/shm/shm_header.h"

namespace baton {

struct ShmGroupOptions {
  uint32_t size = 1;
  uint32_t index = 0;
  uint32_t parts = 1;  // of equal size
  std::size_t window_bytes = 0;
  // Within a step a member that comes later than this has lost its way.
  Micros meet_within_us = 30 * kSecond;
  // Or, if its process is stopped (SIGSTOP), than this.
  Micros stopped_within_us = 2500 * kMillisecond;
  int spins = 0;                   // looks before sleeping; only where every thread has a core
  std::vector<std::string> names;  // of the members, for people ("rank 3"); may be empty
};

// A group of processes of one host over one piece of shared memory: an anonymous file of member 0
// that the others open by its name under /proc, so that it leaves nothing behind and no mount
// limits its size. A thread of its own watches the processes of the other members, so that the end
// of one is known at once, also while nobody meets. Members may also be threads of one process.
class ShmGroup final : public Collective {
 public:
  // Member 0. Errors: invalid_argument, unavailable (memory).
  static Result<std::unique_ptr<ShmGroup>> create(const ShmGroupOptions& options);
  // Another member, with the name() that member 0 gave. Fails with unavailable when that process
  // cannot be reached from here, with conflict when its group has another shape.
  static Result<std::unique_ptr<ShmGroup>> join(const std::string& name,
                                                const ShmGroupOptions& options);
  ~ShmGroup() override;
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  const std::string& name() const { return name_; }
  // Waits for all members and begins to watch them. Everyone calls it once, before all else.
  Result<void> gather(Micros within_us);

  uint32_t size() const override { return options_.size; }
  uint32_t index() const override { return options_.index; }
  std::span<std::byte> window() override;
  Result<void> meet(Circle circle) override;
  Result<void> wait() override;
  void abort(const std::string& reason) override;
  void close() override;
  void on_broken(std::function<void(const Error&)> call) override;

 private:
  ShmGroup(const ShmGroupOptions& options, std::byte* base, int file, std::string name);
  ShmHeader& header() const { return *reinterpret_cast<ShmHeader*>(base_); }
  std::string name_of(uint32_t member) const;

  Result<void> pass(Circle circle, bool patient);
  Result<void> sleep_until_open(Circle circle, SharedBarrier& barrier, uint32_t phase,
                                bool patient);
  void enroll();
  std::vector<uint32_t> latecomers(Circle circle, uint32_t phase) const;
  // What to say of those who stay away, after so long; empty: go on waiting.
  std::string complaint(Circle circle, uint32_t phase, Micros waited) const;
  std::string names_of(const std::vector<uint32_t>& members) const;
  bool is_broken() const;
  Error broken_error() const;
  void break_with(ErrorCode code, const std::string& text);
  void wake_watcher();
  Result<void> start_watcher();
  void watch();

  const ShmGroupOptions options_;
  std::byte* const base_;
  const int file_;
  const std::string name_;

  std::thread watcher_;
  std::vector<int> processes_;  // pidfd of each member of another process, -1 of the others
  int wake_ = -1;               // eventfd: look again
  std::atomic<bool> stopping_{false};
  std::mutex mutex_;  // of the next
  std::function<void(const Error&)> on_broken_;
};

}  // namespace baton
