#pragma once

#include <cstdint>

#include "runtime/layout/geometry.h"

namespace baton {

// What linear layers with quantised weights read: int8 in blocks of 32, or f32 as it is (the exact
// path, beside which mistakes show that int8's noise would hide). Plain weights read f32 in both.
enum class ActivationMode : uint8_t { int8 = 0, f32 = 1 };
const char* activation_mode_name(ActivationMode mode) noexcept;

// The KV type that goes with a mode unless somebody says otherwise.
constexpr KvDtype default_kv_dtype(ActivationMode mode) {
  return mode == ActivationMode::int8 ? KvDtype::bf16 : KvDtype::f32;
}

// Raised with every change that moves a bit of a result.
inline constexpr uint64_t kNumericsVersion = 1;

// Equal for two CPU engines whose results for equal weights have equal bits. Instruction set,
// threads and block size are no part of it: they never move a bit.
uint64_t cpu_numerics_id(ActivationMode mode, KvDtype kv_dtype) noexcept;

}  // namespace baton
