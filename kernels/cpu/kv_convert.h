#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kv_rows.h"
#include "kernels/cpu/vec.h"
#include "kernels/formats.h"

// Conversion of KV rows, one source for every instruction set.
namespace baton::BATON_ISA_NS {

// Where elements [i, i + 16) of both rows of a pair are, and how they become floats and back.
struct RowsF32 {
  using Raw = float;
  static constexpr bool kPaired = false;
  BATON_INLINE static VF widen(const Raw* p) { return load(p); }
  BATON_INLINE static void round(Raw* p, VF x) { store(p, x); }
  static float widen_one(Raw raw) { return raw; }
  static Raw round_one(float value) { return value; }
};
struct RowsF16 {
  using Raw = std::uint16_t;
  static constexpr bool kPaired = false;
  BATON_INLINE static VF widen(const Raw* p) { return from_f16(p); }
  BATON_INLINE static void round(Raw* p, VF x) { store_f16(p, x); }
  static float widen_one(Raw raw) { return f16_to_f32(raw); }
  static Raw round_one(float value) { return f32_to_f16(value); }
};
struct RowsBf16 {
  using Raw = std::uint16_t;
  static constexpr bool kPaired = true;
  static float widen_one(Raw raw) { return bf16_to_f32(raw); }
  static Raw round_one(float value) { return f32_to_bf16(value); }
};

// The rows 2p and 2p + 1, counted in elements of the inner part.
template <class Form>
struct PairPlace {
  std::size_t first;
  std::size_t second;
  std::size_t step;

  PairPlace(std::size_t row, std::size_t length, std::size_t offset)
      : first(row * length + (Form::kPaired ? 2 : 1) * offset),
        second(Form::kPaired ? first + 1 : first + length),
        step(Form::kPaired ? 2 : 1) {}
};

template <class Form>
BATON_INLINE void load_pair(const typename Form::Raw* p, const PairPlace<Form>& at, std::size_t i,
                            VF& a, VF& b) {
  if constexpr (Form::kPaired) {
    const VI both = load_i(p + at.first + 2 * i);
    a = from_bits(shl<16>(both));
    b = from_bits(iand(both, isplat(static_cast<std::int32_t>(0xffff0000u))));
  } else {
    a = Form::widen(p + at.first + i);
    b = Form::widen(p + at.second + i);
  }
}

template <class Form>
BATON_INLINE void store_pair(typename Form::Raw* p, const PairPlace<Form>& at, std::size_t i, VF a,
                             VF b) {
  if constexpr (Form::kPaired) {
    store_i(reinterpret_cast<std::int32_t*>(p + at.first + 2 * i),
            ior(to_bf16(a), shl<16>(to_bf16(b))));
  } else {
    Form::round(p + at.first + i, a);
    Form::round(p + at.second + i, b);
  }
}

template <class From, class To>
static void convert_rows(const KvRows& rows, const std::byte* source, std::byte* target) {
  const auto* from = reinterpret_cast<const typename From::Raw*>(source);
  auto* to = reinterpret_cast<typename To::Raw*>(target);
  for (std::size_t p = 0; p < rows.pairs; ++p) {
    const PairPlace<From> a(rows.source_row + 2 * p, rows.source_length, rows.source_offset);
    const PairPlace<To> b(rows.target_row + 2 * p, rows.target_length, rows.target_offset);
    std::size_t i = 0;
    for (; i + kLanes <= rows.elements; i += kLanes) {
      VF first;
      VF second;
      load_pair<From>(from, a, i, first, second);
      store_pair<To>(to, b, i, first, second);
    }
    for (; i < rows.elements; ++i) {
      to[b.first + i * b.step] = To::round_one(From::widen_one(from[a.first + i * a.step]));
      to[b.second + i * b.step] = To::round_one(From::widen_one(from[a.second + i * a.step]));
    }
  }
}

template <class From>
static void convert_from(const KvRows& rows, const std::byte* source, KvElement target_element,
                         std::byte* target) {
  switch (target_element) {
    case KvElement::f32: return convert_rows<From, RowsF32>(rows, source, target);
    case KvElement::bf16: return convert_rows<From, RowsBf16>(rows, source, target);
    case KvElement::f16: return convert_rows<From, RowsF16>(rows, source, target);
  }
}

void kv_convert(const KvRows& rows, KvElement source_element, const std::byte* source,
                KvElement target_element, std::byte* target) {
  switch (source_element) {
    case KvElement::f32: return convert_from<RowsF32>(rows, source, target_element, target);
    case KvElement::bf16: return convert_from<RowsBf16>(rows, source, target_element, target);
    case KvElement::f16: return convert_from<RowsF16>(rows, source, target_element, target);
  }
}

}  // namespace baton::BATON_ISA_NS
