#include "kernels/random.h"

namespace baton {

PhiloxBlock philox4x32_10(const PhiloxBlock& counter, std::uint32_t key0,
                          std::uint32_t key1) noexcept {
  PhiloxBlock x = counter;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * x.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * x.word[2];
    x = {{static_cast<std::uint32_t>(b >> 32) ^ x.word[1] ^ key0, static_cast<std::uint32_t>(b),
          static_cast<std::uint32_t>(a >> 32) ^ x.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return x;
}

double uniform(const RandomKey& key) noexcept {
  const PhiloxBlock counter{{key.position, key.choice, static_cast<std::uint32_t>(key.purpose), 0}};
  const PhiloxBlock r = philox4x32_10(counter, static_cast<std::uint32_t>(key.seed),
                                      static_cast<std::uint32_t>(key.seed >> 32));
  const std::uint64_t high = r.word[0] >> 5;
  const std::uint64_t low = r.word[1] >> 6;
  return static_cast<double>(high << 26 | low) * 0x1p-53;
}

}  // namespace baton
