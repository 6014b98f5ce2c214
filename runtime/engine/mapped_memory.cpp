#include "runtime/engine/mapped_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

namespace baton {
namespace {

// The number after `name` in a file of "Name:  number kB" lines, in bytes.
uint64_t meminfo_bytes(const std::string& name) {
  std::ifstream file("/proc/meminfo");
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    if (word == name && file >> kib) return kib * 1024;
  }
  return UINT64_MAX;
}

// The number that a control group's file holds; none for "max" or without the file.
uint64_t number_in(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : UINT64_MAX;
}

std::string mebibytes(uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

}  // namespace

uint64_t memory_available_bytes() {
  uint64_t available = meminfo_bytes("MemAvailable:");
  const uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const uint64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit != UINT64_MAX && used != UINT64_MAX) {
    available = std::min(available, limit > used ? limit - used : 0);
  }
  return available;
}

Result<MappedMemory> MappedMemory::allocate(std::size_t bytes, const MemoryPurpose& purpose) {
  CHECK(bytes > 0);
  const uint64_t available = memory_available_bytes();
  void* data = MAP_FAILED;
  if (bytes <= available) {
    data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (data == MAP_FAILED) {
    return Error{ErrorCode::unavailable, purpose.what + " needs " + mebibytes(bytes) +
                                             " of memory, but only " + mebibytes(available) +
                                             " are available: " + purpose.remedy};
  }
  madvise(data, bytes, MADV_HUGEPAGE);  // fewer page faults where the system has them
  return MappedMemory(static_cast<std::byte*>(data), bytes);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedMemory& MappedMemory::operator=(MappedMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedMemory::~MappedMemory() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace baton
