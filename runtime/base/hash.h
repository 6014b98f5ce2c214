#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace baton {

// XXH3, 64 bits, of a byte range. Not cryptographic: it finds accidents, not attackers.
uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed = 0) noexcept;
uint64_t hash64(const void* data, size_t size, uint64_t seed = 0) noexcept;

// XXH3, 64 bits, of bytes that come in stretches: the same value however they are cut.
class Hasher64 {
 public:
  Hasher64() noexcept;
  void add(std::span<const std::byte> bytes) noexcept;
  uint64_t value() const noexcept;

 private:
  alignas(64) std::byte state_[640];
};

// XXH3, 128 bits: for names of contents that are taken on trust.
struct Hash128 {
  uint64_t low = 0;
  uint64_t high = 0;
};
Hash128 hash128(const void* data, size_t size, uint64_t seed = 0) noexcept;

// A bijective mix of 64 bits (splitmix64's finaliser), for hash chains over small integers.
constexpr uint64_t mix64(uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace baton
