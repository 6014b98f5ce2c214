#include "runtime/model/model_fault.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/model/model_file.h"

namespace baton {
namespace {

constexpr int kExitBadModel = 65;
constexpr std::size_t kMappingsMax = 32;
constexpr std::size_t kPathBytes = 512;

// One mapped file. `base` is published last and withdrawn first, so that a reader (the signal
// handler, on any thread) that sees it sees the rest too.
struct Slot {
  std::atomic<bool> taken{false};
  std::atomic<std::uintptr_t> base{0};
  std::size_t size = 0;
  char path[kPathBytes] = {};
};

Slot slots[kMappingsMax];

constexpr char kBefore[] = "baton: ";
constexpr char kBehind[] =
    ": a part of the model could not be read: the file was cut short or replaced while in use, or "
    "its disk failed; expected it unchanged. Restore the file and start again\n";

// One write, so that the sentences of several ranks do not mix.
void say_unreadable(const char* path) {
  char line[sizeof kBefore + kPathBytes + sizeof kBehind];
  std::size_t size = 0;
  for (const char* part : {kBefore, path, kBehind}) {
    const std::size_t length = std::strlen(part);
    std::memcpy(line + size, part, length);
    size += length;
  }
  // Nothing can be done about a failed write here.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line, size);
}

// Async-signal-safe: atomics, memory, write, _exit and sigaction only.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
  for (const Slot& slot : slots) {
    const std::uintptr_t base = slot.base.load(std::memory_order_acquire);
    if (base == 0 || address < base || address - base >= slot.size) continue;
    say_unreadable(slot.path);
    ::_exit(kExitBadModel);
  }
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(signal, &action,
              nullptr);  // the faulting instruction runs again and ends the process
}

}  // namespace

void remember_mapping(const void* base, std::size_t size, const std::string& path) {
  for (Slot& slot : slots) {
    if (slot.taken.exchange(true, std::memory_order_acquire)) continue;
    slot.size = size;
    const std::size_t kept = std::min(path.size(), kPathBytes - 1);
    std::memcpy(slot.path, path.data(), kept);
    slot.path[kept] = '\0';
    slot.base.store(reinterpret_cast<std::uintptr_t>(base), std::memory_order_release);
    return;
  }
}

void forget_mapping(const void* base) {
  for (Slot& slot : slots) {
    if (slot.base.load(std::memory_order_acquire) != reinterpret_cast<std::uintptr_t>(base))
      continue;
    slot.base.store(0, std::memory_order_release);
    slot.taken.store(false, std::memory_order_release);
    return;
  }
}

void install_model_fault_handler() {
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigemptyset(&action.sa_mask);
  CHECK(::sigaction(SIGBUS, &action, nullptr) == 0);
}

}  // namespace baton
