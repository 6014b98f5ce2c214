#pragma once

#include <algorithm>
#include <cstdint>

#include "runtime/base/fields.h"

namespace baton {

// A half-open range [begin, end) of layers or heads.
struct Range {
  uint32_t begin = 0;
  uint32_t end = 0;
  BATON_FIELDS(begin, end)

  uint32_t size() const { return end > begin ? end - begin : 0; }
  bool empty() const { return end <= begin; }
  bool contains(uint32_t at) const { return at >= begin && at < end; }
  bool contains(const Range& other) const { return other.begin >= begin && other.end <= end; }
  friend bool operator==(const Range&, const Range&) = default;
};

// Part of a KV cache, which is a box of layers x kv-heads x tokens; tokens are never split between
// ranks, so a part is a range of layers and a range of heads.
struct Box {
  Range layers;
  Range heads;
  BATON_FIELDS(layers, heads)

  bool empty() const { return layers.empty() || heads.empty(); }
  friend bool operator==(const Box&, const Box&) = default;
};

// The whole box of a model, in the model's own numbering.
struct KvShape {
  uint32_t layers = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  BATON_FIELDS(layers, kv_heads, head_dim)

  friend bool operator==(const KvShape&, const KvShape&) = default;
};

}  // namespace baton
