#include "kernels/kv_repack.h"

#include <doctest/doctest.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/formats.h"
#include "kernels/isa.h"

using namespace baton;

namespace {

std::uint32_t raw_at(KvElement element, const std::byte* inner, std::size_t index) {
  std::uint32_t raw = 0;
  std::memcpy(&raw, inner + index * kv_element_bytes(element), kv_element_bytes(element));
  return raw;
}

// One element by the functions of formats.h, which define the conversion.
std::uint32_t converted(KvElement from, KvElement to, std::uint32_t raw) {
  if (from == to) return raw;
  float value = 0;
  if (from == KvElement::f32) std::memcpy(&value, &raw, 4);
  if (from == KvElement::bf16) value = bf16_to_f32(static_cast<std::uint16_t>(raw));
  if (from == KvElement::f16) value = f16_to_f32(static_cast<std::uint16_t>(raw));
  if (to == KvElement::bf16) return f32_to_bf16(value);
  if (to == KvElement::f16) return f32_to_f16(value);
  std::memcpy(&raw, &value, 4);
  return raw;
}

}  // namespace

TEST_CASE("repacked KV is what kv_layout.h and formats.h say, by every instruction set") {
  std::mt19937_64 random(3);
  const auto pick = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  for (int i = 0; i < 4000; ++i) {
    CAPTURE(i);
    const auto dims = static_cast<std::uint32_t>(2 * (1 + pick(40)));
    const auto from = static_cast<KvElement>(pick(3));
    const auto to = static_cast<KvElement>(pick(3));
    KvRepack what;
    what.source = {1, 1, dims, 16u << pick(3), from};
    what.target = {1, 1, dims, 16u << pick(3), to};
    what.tokens = std::min(what.source.block_tokens, what.target.block_tokens);
    what.source_token = pick(what.source.block_tokens / what.tokens) * what.tokens;
    what.target_token = pick(what.target.block_tokens / what.tokens) * what.tokens;
    what.is_key = pick(2) == 0;
    // Any bits at all: infinities, NaNs and subnormals among them.
    std::vector<std::byte> source(what.source.head_bytes());
    for (std::byte& b : source) b = static_cast<std::byte>(random());
    for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
      if (!isa_supported(isa)) continue;
      std::vector<std::byte> target(what.target.head_bytes(), std::byte{0xEE});
      kv_repack_by(isa, what, source.data(), target.data());
      int wrong = 0;
      for (std::size_t token = 0; token < what.target.block_tokens; ++token) {
        const bool moved = token >= what.target_token && token < what.target_token + what.tokens;
        for (std::size_t dim = 0; dim < dims; ++dim) {
          const std::size_t here =
              what.is_key ? what.target.k_index(token, dim) : what.target.v_index(token, dim);
          std::uint32_t expected = to == KvElement::f32 ? 0xEEEEEEEEu : 0xEEEEu;
          if (moved) {
            const std::size_t there = token - what.target_token + what.source_token;
            const std::size_t index =
                what.is_key ? what.source.k_index(there, dim) : what.source.v_index(there, dim);
            expected = converted(from, to, raw_at(from, source.data(), index));
          }
          wrong += raw_at(to, target.data(), here) != expected;
        }
      }
      CHECK_MESSAGE(wrong == 0, isa_name(isa));
    }
  }
}
