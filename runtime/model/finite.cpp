#include "runtime/model/finite.h"

#include <cstring>

namespace baton {
namespace {

// Where the floating-point numbers of a block are, and which of their bits say "not finite".
struct BlockNumbers {
  std::size_t count;  // two-byte (or, for f32, four-byte) numbers at the start of the block
  std::uint32_t exponent;
};

BlockNumbers numbers_of(TensorType type) {
  constexpr std::uint32_t kHalf = 0x7C00;
  switch (type) {
    case TensorType::f32: return {1, 0x7F800000};
    case TensorType::f16: return {1, kHalf};
    case TensorType::bf16: return {1, 0x7F80};
    case TensorType::q4_0: return {1, kHalf};  // d
    case TensorType::q4_1: return {2, kHalf};  // d, m
    case TensorType::q8_0: return {1, kHalf};  // d
  }
  return {0, 0};
}

template <class Bits>
std::optional<std::uint64_t> scan(std::span<const std::byte> data, std::size_t block_bytes,
                                  const BlockNumbers& numbers) {
  const auto exponent = static_cast<Bits>(numbers.exponent);
  for (std::size_t block = 0; (block + 1) * block_bytes <= data.size(); ++block) {
    for (std::size_t i = 0; i < numbers.count; ++i) {
      Bits bits;
      std::memcpy(&bits, data.data() + block * block_bytes + i * sizeof bits, sizeof bits);
      if ((bits & exponent) == exponent) return block;
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> first_not_finite(TensorType type, std::span<const std::byte> data) {
  const std::size_t bytes = tensor_block_bytes(type);
  const BlockNumbers numbers = numbers_of(type);
  const std::optional<std::uint64_t> block = type == TensorType::f32
                                                 ? scan<std::uint32_t>(data, bytes, numbers)
                                                 : scan<std::uint16_t>(data, bytes, numbers);
  if (!block) return std::nullopt;
  return *block * tensor_block_elements(type);
}

}  // namespace baton
