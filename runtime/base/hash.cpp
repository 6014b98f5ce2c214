#include "runtime/base/hash.h"

#define XXH_STATIC_LINKING_ONLY  // the state, by value
// clang-format off: the second redirects the first to what this processor has
#include <xxh_x86dispatch.h>
#include <xxhash.h>
// clang-format on

#include <new>

namespace baton {

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t hash64(const void* data, size_t size, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(data, size, seed);
}

Hasher64::Hasher64() noexcept {
  static_assert(sizeof(XXH3_state_t) <= sizeof(state_) && alignof(XXH3_state_t) <= 64);
  XXH3_64bits_reset(new (state_) XXH3_state_t{});
}

void Hasher64::add(std::span<const std::byte> bytes) noexcept {
  XXH3_64bits_update(reinterpret_cast<XXH3_state_t*>(state_), bytes.data(), bytes.size());
}

uint64_t Hasher64::value() const noexcept {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_));
}

Hash128 hash128(const void* data, size_t size, uint64_t seed) noexcept {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, size, seed);
  return {hash.low64, hash.high64};
}

}  // namespace baton
