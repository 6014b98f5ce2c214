#pragma once

#include <cstddef>

#include "kernels/kv_layout.h"

namespace baton {

// A stretch of one inner part as pairs of rows: K's rows are dims and run along the tokens, V's are
// tokens and run along the dims. In a bf16 store the two rows of a pair are interleaved, element by
// element; in the others they follow each other.
struct KvRows {
  std::size_t source_row = 0;  // of the first pair; even, as all of these rows
  std::size_t target_row = 0;
  std::size_t pairs = 0;
  std::size_t source_length = 0;  // elements of a whole row of the inner part
  std::size_t target_length = 0;
  std::size_t source_offset = 0;  // where the stretch begins within a row
  std::size_t target_offset = 0;
  std::size_t elements = 0;  // of a row that move
};

// Converts rows between two different element types; one implementation per instruction set.
using KvConvert = void (*)(const KvRows& rows, KvElement source_element, const std::byte* source,
                           KvElement target_element, std::byte* target);
namespace scalar {
void kv_convert(const KvRows&, KvElement, const std::byte*, KvElement, std::byte*);
}
namespace avx2 {
void kv_convert(const KvRows&, KvElement, const std::byte*, KvElement, std::byte*);
}
namespace avx512 {
void kv_convert(const KvRows&, KvElement, const std::byte*, KvElement, std::byte*);
}

}  // namespace baton
