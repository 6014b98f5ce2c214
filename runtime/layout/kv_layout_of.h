#pragma once

#include "kernels/kv_layout.h"
#include "runtime/base/check.h"
#include "runtime/layout/geometry.h"

namespace baton {

// A geometry in the kernels' terms: where each element of a block is.
inline KvLayout kv_layout_of(const KvGeometry& geometry) {
  static_assert(static_cast<int>(KvElement::f32) == static_cast<int>(KvDtype::f32));
  static_assert(static_cast<int>(KvElement::bf16) == static_cast<int>(KvDtype::bf16));
  static_assert(static_cast<int>(KvElement::f16) == static_cast<int>(KvDtype::f16));
  KvLayout layout;
  layout.layers = geometry.layers;
  layout.kv_heads = geometry.kv_heads;
  layout.head_dim = geometry.head_dim;
  layout.block_tokens = geometry.block_tokens;
  layout.element = static_cast<KvElement>(geometry.dtype);
  CHECK(layout.block_bytes() == geometry.block_bytes());
  return layout;
}

}  // namespace baton
