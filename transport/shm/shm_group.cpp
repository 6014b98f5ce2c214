#include "transport/shm/shm_group.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "transport/shm/futex.h"
#include "transport/shm/process_state.h"

namespace baton {
namespace {

constexpr Micros kNap = 50 * kMillisecond;  // then a sleeper looks around

std::size_t file_bytes(const ShmGroupOptions& options) {
  return kGroupWindowOffset + options.window_bytes;
}

Error system_error(const std::string& what) {
  return {ErrorCode::unavailable, what + ": " + std::strerror(errno)};
}

Result<void> check_shape(const ShmGroupOptions& o) {
  if (o.size == 0 || o.size > kGroupMembersMax || o.index >= o.size || o.parts == 0 ||
      o.size % o.parts != 0) {
    return Error{ErrorCode::invalid_argument,
                 "a group of " + std::to_string(o.size) + " members in " + std::to_string(o.parts) +
                     " parts cannot be: expected 1 to " + std::to_string(kGroupMembersMax) +
                     " members, a multiple of the parts"};
  }
  return {};
}

Result<std::byte*> map_file(int file, std::size_t bytes) {
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (base == MAP_FAILED) return system_error("cannot map the shared memory of an instance");
  madvise(base, bytes, MADV_HUGEPAGE);
  return static_cast<std::byte*>(base);
}

std::string group_name(int file, uint64_t token) {
  char text[96];
  std::snprintf(text, sizeof text, "/proc/%d/fd/%d %016llx", static_cast<int>(getpid()), file,
                static_cast<unsigned long long>(token));
  return text;
}

Result<void> check_header(const ShmHeader& header, uint64_t token, const ShmGroupOptions& options,
                          std::size_t bytes) {
  if (bytes < sizeof(ShmHeader) || header.magic != kGroupMagic || header.token != token) {
    return Error{ErrorCode::unavailable,
                 "the first rank of the instance is not where it said: do its ranks share one "
                 "host and one process namespace?"};
  }
  if (header.size != options.size || header.parts != options.parts ||
      header.window_bytes != options.window_bytes) {
    return Error{ErrorCode::conflict,
                 "the ranks of an instance were started with different options: its first rank "
                 "shares " +
                     std::to_string(header.window_bytes) + " bytes among " +
                     std::to_string(header.size) + " ranks, this one expected " +
                     std::to_string(options.window_bytes) + " among " +
                     std::to_string(options.size)};
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ShmGroup>> ShmGroup::create(const ShmGroupOptions& options) {
  if (Result<void> checked = check_shape(options); !checked.ok()) return checked.error();
  const int file = memfd_create("baton-instance", MFD_CLOEXEC);
  if (file < 0) return system_error("cannot make the shared memory of an instance");
  if (ftruncate(file, static_cast<off_t>(file_bytes(options))) != 0) {
    ::close(file);
    return system_error("cannot size the shared memory of an instance");
  }
  const Result<std::byte*> base = map_file(file, file_bytes(options));
  if (!base.ok()) {
    ::close(file);
    return base.error();
  }
  uint64_t token = 0;
  while (token == 0) {
    if (getrandom(&token, sizeof token, 0) != sizeof token) token = 0;
  }
  auto* header = reinterpret_cast<ShmHeader*>(*base);
  header->size = options.size;
  header->parts = options.parts;
  header->window_bytes = options.window_bytes;
  header->token = token;
  header->magic = kGroupMagic;
  return std::unique_ptr<ShmGroup>(new ShmGroup(options, *base, file, group_name(file, token)));
}

Result<std::unique_ptr<ShmGroup>> ShmGroup::join(const std::string& name,
                                                 const ShmGroupOptions& options) {
  if (Result<void> checked = check_shape(options); !checked.ok()) return checked.error();
  const std::size_t space = name.find(' ');
  const std::string path = name.substr(0, space);
  const uint64_t token =
      space == std::string::npos ? 0 : std::strtoull(name.c_str() + space + 1, nullptr, 16);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return system_error("cannot open the shared memory of the instance at " + path);
  struct stat status {};
  if (fstat(file, &status) != 0 || status.st_size < static_cast<off_t>(sizeof(ShmHeader))) {
    ::close(file);
    return Error{ErrorCode::unavailable, path + " is not the shared memory of an instance"};
  }
  const auto bytes = static_cast<std::size_t>(status.st_size);
  const Result<std::byte*> base = map_file(file, bytes);
  if (!base.ok()) {
    ::close(file);
    return base.error();
  }
  const auto& header = *reinterpret_cast<const ShmHeader*>(*base);
  if (Result<void> checked = check_header(header, token, options, bytes); !checked.ok()) {
    munmap(*base, bytes);
    ::close(file);
    return checked.error();
  }
  return std::unique_ptr<ShmGroup>(new ShmGroup(options, *base, file, name));
}

ShmGroup::ShmGroup(const ShmGroupOptions& options, std::byte* base, int file, std::string name)
    : options_(options), base_(base), file_(file), name_(std::move(name)) {
  enroll();
}

void ShmGroup::enroll() {
  header().members[options_.index].pid.store(getpid(), std::memory_order_release);
  header().joined.fetch_add(1, std::memory_order_acq_rel);
  futex_wake_all(header().joined);
}

ShmGroup::~ShmGroup() {
  stopping_.store(true);
  if (watcher_.joinable()) {
    wake_watcher();
    watcher_.join();
  }
  for (const int process : processes_) {
    if (process >= 0) ::close(process);
  }
  if (wake_ >= 0) ::close(wake_);
  munmap(base_, file_bytes(options_));
  ::close(file_);
}

Result<void> ShmGroup::gather(Micros within_us) {
  std::atomic<uint32_t>& joined = header().joined;
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(within_us);
  for (uint32_t here = joined.load(std::memory_order_acquire); here < options_.size;
       here = joined.load(std::memory_order_acquire)) {
    if (std::chrono::steady_clock::now() >= until) {
      return Error{ErrorCode::unavailable, "only " + std::to_string(here) + " of the " +
                                               std::to_string(options_.size) +
                                               " ranks of the instance came within " +
                                               std::to_string(within_us / kSecond) + " s"};
    }
    futex_wait(joined, here, kNap);
  }
  return start_watcher();
}

std::span<std::byte> ShmGroup::window() {
  return {base_ + kGroupWindowOffset, options_.window_bytes};
}

Result<void> ShmGroup::meet(Circle circle) {
  return pass(circle, false);
}

Result<void> ShmGroup::wait() {
  return pass(Circle::all, true);
}

Result<void> ShmGroup::pass(Circle circle, bool patient) {
  if (is_broken()) return broken_error();
  ShmHeader& shared = header();
  const uint32_t part_size = options_.size / options_.parts;
  const bool all = circle == Circle::all;
  SharedBarrier& barrier = shared.barriers[all ? 0 : 1 + options_.index / part_size];
  const uint32_t count = all ? options_.size : part_size;
  const uint32_t phase = barrier.phase.load(std::memory_order_relaxed);
  shared.members[options_.index].came[static_cast<int>(circle)].store(phase + 1,
                                                                      std::memory_order_relaxed);
  if (barrier.arrived.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    barrier.arrived.store(0, std::memory_order_relaxed);
    shared.progress.fetch_add(1, std::memory_order_relaxed);
    barrier.phase.store(phase + 1, std::memory_order_seq_cst);
    if (barrier.sleepers.load(std::memory_order_seq_cst) > 0) futex_wake_all(barrier.phase);
    return {};
  }
  for (int i = 0; i < options_.spins; ++i) {
    if (barrier.phase.load(std::memory_order_acquire) != phase) return {};
    __builtin_ia32_pause();
  }
  barrier.sleepers.fetch_add(1, std::memory_order_seq_cst);
  Result<void> slept = sleep_until_open(circle, barrier, phase, patient);
  barrier.sleepers.fetch_sub(1, std::memory_order_relaxed);
  return slept;
}

Result<void> ShmGroup::sleep_until_open(Circle circle, SharedBarrier& barrier, uint32_t phase,
                                        bool patient) {
  // Time spent asleep, nap by nap: a process that was stopped must not blame the others.
  Micros waited = 0;
  uint32_t progress = header().progress.load(std::memory_order_relaxed);
  while (barrier.phase.load(std::memory_order_acquire) == phase) {
    if (is_broken()) {
      wake_watcher();
      return broken_error();
    }
    const auto start = std::chrono::steady_clock::now();
    futex_wait(barrier.phase, phase, kNap);
    const auto nap = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - start);
    waited += std::min<Micros>(nap.count(), 2 * kNap);
    const uint32_t now = header().progress.load(std::memory_order_relaxed);
    if (now != progress) waited = 0;
    progress = now;
    if (patient) continue;
    const std::string late = complaint(circle, phase, waited);
    if (!late.empty()) break_with(ErrorCode::deadline_exceeded, late);
  }
  return {};
}

std::string ShmGroup::complaint(Circle circle, uint32_t phase, Micros waited) const {
  if (waited < std::min(options_.stopped_within_us, options_.meet_within_us)) return "";
  const std::vector<uint32_t> late = latecomers(circle, phase);
  if (waited >= options_.meet_within_us && !late.empty()) {
    return names_of(late) + " did not come to a meeting of the instance within " +
           std::to_string(options_.meet_within_us / kMillisecond) + " ms";
  }
  std::vector<uint32_t> stopped;
  for (const uint32_t member : late) {
    const pid_t pid = header().members[member].pid.load(std::memory_order_acquire);
    if (pid != getpid() && process_is_stopped(pid)) stopped.push_back(member);
  }
  return stopped.empty() ? "" : names_of(stopped) + " of the instance is stopped";
}

std::string ShmGroup::name_of(uint32_t member) const {
  std::string name =
      member < options_.names.size() ? options_.names[member] : "member " + std::to_string(member);
  return name + " (pid " + std::to_string(header().members[member].pid.load()) + ")";
}

std::string ShmGroup::names_of(const std::vector<uint32_t>& members) const {
  std::string names;
  for (const uint32_t member : members) names += (names.empty() ? "" : ", ") + name_of(member);
  return names;
}

std::vector<uint32_t> ShmGroup::latecomers(Circle circle, uint32_t phase) const {
  const uint32_t part_size = options_.size / options_.parts;
  std::vector<uint32_t> late;
  for (uint32_t i = 0; i < options_.size; ++i) {
    if (circle == Circle::part && i / part_size != options_.index / part_size) continue;
    if (header().members[i].came[static_cast<int>(circle)].load() != phase + 1) late.push_back(i);
  }
  return late;
}

bool ShmGroup::is_broken() const {
  return header().broken.load(std::memory_order_acquire) == Broken::yes;
}

Error ShmGroup::broken_error() const {
  const ShmHeader& shared = header();
  const std::size_t length = strnlen(shared.error_text, sizeof shared.error_text);
  return {static_cast<ErrorCode>(shared.error_code), std::string(shared.error_text, length)};
}

// The first reason counts.
void ShmGroup::break_with(ErrorCode code, const std::string& text) {
  ShmHeader& shared = header();
  Broken expected = Broken::no;
  if (shared.broken.compare_exchange_strong(expected, Broken::writing)) {
    shared.error_code = static_cast<int32_t>(code);
    const std::size_t length = std::min(text.size(), sizeof shared.error_text - 1);
    std::memcpy(shared.error_text, text.data(), length);
    shared.error_text[length] = '\0';
    shared.broken.store(Broken::yes, std::memory_order_release);
  }
  for (uint32_t i = 0; i <= options_.parts; ++i) futex_wake_all(shared.barriers[i].phase);
  wake_watcher();
}

void ShmGroup::abort(const std::string& reason) {
  break_with(ErrorCode::cancelled, name_of(options_.index) + ": " + reason);
}

void ShmGroup::close() {
  header().closed.store(1, std::memory_order_release);
}

void ShmGroup::on_broken(std::function<void(const Error&)> call) {
  {
    const std::lock_guard lock(mutex_);
    on_broken_ = std::move(call);
  }
  wake_watcher();
}

}  // namespace baton
