// The watching half of ShmGroup: whether the processes of the other members live.

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/shm/shm_group.h"

namespace baton {
namespace {

// Only for a break that a member of another process caused without dying.
constexpr int kLookEveryMs = 1000;

int open_process(pid_t pid) {
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
}

}  // namespace

Result<void> ShmGroup::start_watcher() {
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) {
    return Error{ErrorCode::unavailable,
                 std::string("cannot watch the ranks of the instance: ") + std::strerror(errno)};
  }
  processes_.assign(options_.size, -1);
  for (uint32_t i = 0; i < options_.size; ++i) {
    const pid_t pid = header().members[i].pid.load(std::memory_order_acquire);
    if (pid == getpid()) continue;
    processes_[i] = open_process(pid);
    if (processes_[i] >= 0) continue;
    const std::string why = errno == ESRCH ? "it has ended" : std::strerror(errno);
    return Error{ErrorCode::unavailable, name_of(i) + " of the instance cannot be watched: " + why};
  }
  watcher_ = std::thread([this] { watch(); });
  return {};
}

void ShmGroup::wake_watcher() {
  if (wake_ < 0) return;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_, &one, sizeof one);
}

void ShmGroup::watch() {
  std::vector<pollfd> polled{{wake_, POLLIN, 0}};
  for (const int process : processes_) polled.push_back({process, POLLIN, 0});
  while (!stopping_.load()) {
    poll(polled.data(), polled.size(), kLookEveryMs);
    uint64_t count = 0;
    while (read(wake_, &count, sizeof count) > 0) {
    }
    for (uint32_t i = 0; i < options_.size; ++i) {
      pollfd& process = polled[1 + i];
      if (process.fd < 0 || (process.revents & POLLIN) == 0) continue;
      process.fd = -1;  // said once
      if (header().closed.load(std::memory_order_acquire) == 0) {
        break_with(ErrorCode::worker_lost, name_of(i) + " of the instance ended");
      }
    }
    if (!is_broken() || stopping_.load()) continue;
    const std::lock_guard lock(mutex_);  // who takes the call away waits until it has returned
    if (const auto call = std::exchange(on_broken_, nullptr)) call(broken_error());
  }
}

}  // namespace baton
