#pragma once

#include <cstdint>

namespace baton {

// What a random number is for; part of its key, so that uses never share one.
enum class RandomPurpose : std::uint32_t { sample = 0 };

// Names one random number: whoever asks, in whatever batch, gets the same (numerics.md rule 9).
struct RandomKey {
  std::uint64_t seed = 0;
  std::uint32_t position = 0;  // absolute position of the token that is chosen
  std::uint32_t choice = 0;    // of the request (n > 1)
  RandomPurpose purpose = RandomPurpose::sample;
};

// Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011).
struct PhiloxBlock {
  std::uint32_t word[4];
};
PhiloxBlock philox4x32_10(const PhiloxBlock& counter, std::uint32_t key0,
                          std::uint32_t key1) noexcept;

// Uniform in [0, 1) with 53 bits; key = seed, counter = (position, choice, purpose, 0).
double uniform(const RandomKey& key) noexcept;

}  // namespace baton
