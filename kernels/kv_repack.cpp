#include "kernels/kv_repack.h"

#include <cstring>

#include "kernels/cpu/kv_rows.h"

namespace baton {
namespace {

KvRows rows_of(const KvRepack& what) {
  KvRows rows;
  const std::size_t dims = what.source.head_dim;
  if (what.is_key) {
    rows.pairs = dims / 2;
    rows.source_length = what.source.block_tokens;
    rows.target_length = what.target.block_tokens;
    rows.source_offset = what.source_token;
    rows.target_offset = what.target_token;
    rows.elements = what.tokens;
  } else {
    rows.source_row = what.source_token;
    rows.target_row = what.target_token;
    rows.pairs = what.tokens / 2;
    rows.source_length = rows.target_length = rows.elements = dims;
  }
  return rows;
}

// A row of 16 tokens or more is a multiple of 32 bytes: short copies without a call.
void copy_row(std::byte* target, const std::byte* source, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += 32) std::memcpy(target + at, source + at, 32);
}

// The same element type: rows of bits, two at a time where they are interleaved.
void regroup(const KvRepack& what, const std::byte* source, std::byte* target) {
  const std::size_t element = kv_element_bytes(what.source.element);
  if (!what.is_key) {
    const std::size_t token_bytes = what.source.head_dim * element;
    std::memcpy(target + what.target_token * token_bytes, source + what.source_token * token_bytes,
                what.tokens * token_bytes);
    return;
  }
  const std::size_t together = what.source.element == KvElement::bf16 ? 2 : 1;
  const std::size_t step = together * element;
  const std::size_t source_row = what.source.block_tokens * step;
  const std::size_t target_row = what.target.block_tokens * step;
  if (source_row == target_row) {  // whole blocks on both sides
    std::memcpy(target, source, what.source.head_bytes());
    return;
  }
  source += what.source_token * step;
  target += what.target_token * step;
  for (std::size_t row = 0; row < what.source.head_dim / together; ++row) {
    copy_row(target + row * target_row, source + row * source_row, what.tokens * step);
  }
}

KvConvert convert_by(Isa isa) {
  switch (isa) {
    case Isa::scalar: return scalar::kv_convert;
    case Isa::avx2: return avx2::kv_convert;
    case Isa::avx512:
    case Isa::amx: return avx512::kv_convert;
  }
  return scalar::kv_convert;
}

}  // namespace

void kv_repack_by(Isa isa, const KvRepack& what, const std::byte* source_inner,
                  std::byte* target_inner) noexcept {
  if (what.source.element == what.target.element) return regroup(what, source_inner, target_inner);
  convert_by(isa)(rows_of(what), what.source.element, source_inner, what.target.element,
                  target_inner);
}

void kv_repack(const KvRepack& what, const std::byte* source_inner,
               std::byte* target_inner) noexcept {
  kv_repack_by(isa_choice().isa, what, source_inner, target_inner);
}

}  // namespace baton
