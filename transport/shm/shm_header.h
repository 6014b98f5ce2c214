#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace baton {

// The first bytes of a group's shared memory (shm_group.h). Zero bytes are a valid start.

inline constexpr uint32_t kGroupMembersMax = 64;
inline constexpr uint64_t kGroupMagic = 0x3150554f52474e42;  // "BNGROUP1"

struct SharedBarrier {
  alignas(64) std::atomic<uint32_t> arrived;
  alignas(64) std::atomic<uint32_t> phase;  // raised when the barrier opens; a futex
  std::atomic<uint32_t> sleepers;           // who must be woken
};

struct SharedMember {
  alignas(64) std::atomic<int32_t> pid;
  std::atomic<uint32_t> came[2];  // per circle: the phase that its last arrival opens
};

enum class Broken : uint32_t { no = 0, writing = 1, yes = 2 };

struct ShmHeader {
  uint64_t magic;
  uint64_t token;  // of this group; a stale or foreign name does not know it
  uint32_t size;
  uint32_t parts;
  uint64_t window_bytes;
  std::atomic<uint32_t> joined;    // members; a futex
  std::atomic<uint32_t> progress;  // barriers opened, of any circle
  std::atomic<uint32_t> closed;
  std::atomic<Broken> broken;
  int32_t error_code;  // these two before broken becomes yes
  char error_text[480];
  SharedMember members[kGroupMembersMax];
  SharedBarrier barriers[1 + kGroupMembersMax];  // of all, then of each part
};

// The window starts at a page of any size that matters.
inline constexpr std::size_t kGroupWindowOffset = std::size_t{64} << 10;
static_assert(sizeof(ShmHeader) <= kGroupWindowOffset);
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace baton
