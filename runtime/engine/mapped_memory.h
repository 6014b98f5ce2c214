#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/base/result.h"

namespace baton {

// What an allocation is for, and what its user can change: parts of the sentence of its error.
struct MemoryPurpose {
  std::string what;    // "the KV cache"
  std::string remedy;  // "lower --kv-cache-memory"
};

// Bytes that this process may still take: of the machine, or of its control group if that is less.
uint64_t memory_available_bytes();

// Owns one anonymous mapping: page-aligned, zero until written, and physical memory only where it
// was touched. For what lives as long as its engine. Owner thread only; the bytes are anyone's.
class MappedMemory {
 public:
  // Error `unavailable` with both numbers when there is not that much memory.
  static Result<MappedMemory> allocate(std::size_t bytes, const MemoryPurpose& purpose);

  MappedMemory() = default;
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&& other) noexcept;
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory();

  std::byte* data() const { return data_; }
  std::size_t size() const { return size_; }

 private:
  MappedMemory(std::byte* data, std::size_t size) : data_(data), size_(size) {}

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace baton
