#include "runtime/base/hash.h"

#include <xxhash.h>

namespace baton {

uint64_t hash64(std::span<const std::byte> bytes, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

uint64_t hash64(const void* data, size_t size, uint64_t seed) noexcept {
  return XXH3_64bits_withSeed(data, size, seed);
}

Hash128 hash128(const void* data, size_t size, uint64_t seed) noexcept {
  const XXH128_hash_t hash = XXH3_128bits_withSeed(data, size, seed);
  return {hash.low64, hash.high64};
}

}  // namespace baton
