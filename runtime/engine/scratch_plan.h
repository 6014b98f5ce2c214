#pragma once

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/engine/mapped_memory.h"

namespace baton {

// Lays out the working arrays of a component in one piece of memory, each at a multiple of 64
// bytes: add all, then allocate or place once, which fills the pointers in. Used while an engine is
// built.
class ScratchPlan {
 public:
  template <class T>
  void add(T*& array, std::size_t count) {
    const std::size_t at = bytes_;
    fill_.push_back([&array, at](std::byte* base) { array = reinterpret_cast<T*>(base + at); });
    bytes_ += (count * sizeof(T) + 63) / 64 * 64;
  }

  Result<MappedMemory> allocate(const MemoryPurpose& purpose) const {
    Result<MappedMemory> memory = MappedMemory::allocate(bytes_, purpose);
    if (memory) place(memory->data());
    return memory;
  }

  // In memory of somebody else's: bytes() of it, at a multiple of 64.
  void place(std::byte* base) const {
    for (const auto& fill : fill_) fill(base);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::vector<std::function<void(std::byte*)>> fill_;
  std::size_t bytes_ = 0;
};

}  // namespace baton
