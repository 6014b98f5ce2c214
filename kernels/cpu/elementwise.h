#pragma once

#include <cstddef>

#include "kernels/cpu/math.h"
#include "kernels/kv_layout.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

// Norm, activations, RoPE, quantisation of activations and KV writes, one source for every ISA.
namespace baton::BATON_ISA_NS {

static void rms_norm(const float* x, const float* weight, std::size_t n, float eps, float* out) {
  VF squares = zero();
  each_lanes(n, [&](std::size_t i, int m) {
    const VF v = load_lanes(x + i, m);
    squares = fma(v, v, squares);
  });
  const float mean = tree_sum(squares) / static_cast<float>(n);
  const VF r = splat(1.0f / __builtin_sqrtf(mean + eps));
  each_lanes(n, [&](std::size_t i, int m) {
    store_lanes(out + i, mul(load_lanes(x + i, m), mul(r, load_lanes(weight + i, m))), m);
  });
}

static void silu_mul(const float* gate, const float* up, std::size_t n, float* out) {
  each_lanes(n, [&](std::size_t i, int m) {
    const VF g = load_lanes(gate + i, m);
    store_lanes(out + i, mul(mul(g, sigmoid_v(g)), load_lanes(up + i, m)), m);
  });
}

static void add_rows(const float* a, const float* b, std::size_t n, float* out) {
  each_lanes(n, [&](std::size_t i, int m) {
    store_lanes(out + i, add(load_lanes(a + i, m), load_lanes(b + i, m)), m);
  });
}

template <VF (*kFunction)(VF)>
static void map(const float* x, std::size_t n, float* out) {
  each_lanes(
      n, [&](std::size_t i, int m) { store_lanes(out + i, kFunction(load_lanes(x + i, m)), m); });
}
static VF exp_f(VF x) {
  return exp_v(x);
}
static VF log_f(VF x) {
  return log_v(x);
}
static VF sin_f(VF x) {
  return sin_v(x);
}
static VF cos_f(VF x) {
  return cos_v(x);
}
static VF sigmoid_f(VF x) {
  return sigmoid_v(x);
}

// (a, b) -> (a c - b s, b c + a s); the table holds cosines and signed sines, each twice.
static void rope(float* x, std::size_t heads, std::size_t head_dim, std::size_t rope_dim,
                 const float* table) {
  const float* sines = table + rope_dim;
  for (std::size_t h = 0; h < heads; ++h, x += head_dim) {
    each_lanes(rope_dim, [&](std::size_t i, int m) {
      const VF v = load_lanes(x + i, m);
      const VF turned = mul(swap_pairs(v), load_lanes(sines + i, m));
      store_lanes(x + i, fma(v, load_lanes(table + i, m), turned), m);
    });
  }
}

// One row of one record. The largest magnitude is found among bit patterns, where NaN is largest:
// a NaN makes the block's scale NaN, and so everything that follows.
BATON_INLINE void quantize_block(const float* x, std::byte* record, std::size_t row) {
  const VF x0 = load(x);
  const VF x1 = load(x + kLanes);
  const VI magnitude = isplat(0x7fffffff);
  const VI largest = imax(iand(bits_of(x0), magnitude), iand(bits_of(x1), magnitude));
  const float amax = to_scalar_bits(static_cast<std::uint32_t>(lane_max(largest)));
  const float da = amax / 127.0f;
  const VF id = splat(amax > 0.0f ? 127.0f / amax : 0.0f);
  const VI low = isplat(-127);
  const VI high = isplat(127);
  const VI q0 = imin(imax(round_to_int(mul(x0, id)), low), high);
  const VI q1 = imin(imax(round_to_int(mul(x1, id)), low), high);
  const std::int32_t sum = lane_sum(iadd(q0, q1));
  auto* q = reinterpret_cast<std::int8_t*>(record) + row * kQuantBlock;
  store_i8(q, q0);
  store_i8(q + kLanes, q1);
  auto* scales = reinterpret_cast<float*>(record + kQuantScalesOffset);
  scales[row] = da;
  scales[kQuantRows + row] = da * static_cast<float>(sum);
  auto* offsets = reinterpret_cast<std::int32_t*>(record + kQuantOffsetsOffset);
  offsets[row] = -8 * sum;
  offsets[kQuantRows + row] = -128 * sum;
}

static void quantize(const float* x, std::size_t x_stride, std::size_t row_begin,
                     std::size_t row_end, std::size_t block_begin, std::size_t block_end,
                     const QuantRows& dst) {
  const std::size_t blocks = dst.cols / kQuantBlock;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    std::byte* group = dst.data + row / kQuantRows * blocks * kQuantRecordBytes;
    for (std::size_t b = block_begin; b < block_end; ++b) {
      quantize_block(x + row * x_stride + b * kQuantBlock, group + b * kQuantRecordBytes,
                     row % kQuantRows);
    }
  }
}

// Values of one token and head, rounded to the KV type; head_dim in chunks of up to this many.
inline constexpr std::size_t kKvChunk = 128;

// The two halves of bf16 pairs lie apart: K's neighbours are dims of one token, V's are tokens.
BATON_INLINE void kv_write_bf16(const KvLayout& layout, const float* x, bool is_key,
                                std::size_t token, std::byte* inner) {
  alignas(64) std::uint16_t halves[kKvChunk];
  const std::size_t pair_step = is_key ? layout.block_tokens * 4 : 8;  // bytes from dim to dim + 2
  std::byte* p = inner + (is_key ? layout.k_index(token, 0) : layout.v_index(token, 0)) * 2;
  for (std::size_t first = 0; first < layout.head_dim; first += kKvChunk) {
    const std::size_t n = layout.head_dim - first < kKvChunk ? layout.head_dim - first : kKvChunk;
    each_lanes(n, [&](std::size_t i, int m) {
      store_u16(halves + i, to_bf16(load_lanes(x + first + i, m)));
    });
    for (std::size_t i = 0; i < n; i += 2, p += pair_step) {
      __builtin_memcpy(p, halves + i, is_key ? 4 : 2);
      if (!is_key) __builtin_memcpy(p + 4, halves + i + 1, 2);
    }
  }
}

// K's dims lie block_tokens elements apart, V's side by side.
BATON_INLINE void kv_write_f16(const KvLayout& layout, const float* x, bool is_key,
                               std::size_t token, std::byte* inner) {
  alignas(64) std::uint16_t halves[kLanes];
  const std::size_t step = is_key ? layout.block_tokens : 1;
  auto* p = reinterpret_cast<std::uint16_t*>(inner) +
            (is_key ? layout.k_index(token, 0) : layout.v_index(token, 0));
  each_lanes(layout.head_dim, [&](std::size_t i, int m) {
    store_f16(halves, load_lanes(x + i, m));
    for (int lane = 0; lane < m; ++lane, p += step) *p = halves[lane];
  });
}

BATON_INLINE void kv_write_f32(const KvLayout& layout, const float* x, bool is_key,
                               std::size_t token, std::byte* inner) {
  const std::size_t step = is_key ? layout.block_tokens : 1;
  std::byte* p =
      inner + (is_key ? layout.k_index(token, 0) : layout.v_index(token, 0)) * sizeof(float);
  for (std::size_t i = 0; i < layout.head_dim; ++i, p += step * sizeof(float)) {
    __builtin_memcpy(p, x + i, sizeof(float));  // as bits: a NaN keeps its own
  }
}

static void kv_write_head(const KvLayout& layout, const float* x, bool is_key, std::size_t token,
                          std::byte* inner) {
  switch (layout.element) {
    case KvElement::f32: return kv_write_f32(layout, x, is_key, token, inner);
    case KvElement::bf16: return kv_write_bf16(layout, x, is_key, token, inner);
    case KvElement::f16: return kv_write_f16(layout, x, is_key, token, inner);
  }
}

static void kv_write(const KvWriteArgs& args, std::size_t row_begin, std::size_t row_end,
                     std::size_t kv_head_begin, std::size_t kv_head_end) {
  const KvLayout& layout = args.layout;
  for (std::size_t row = row_begin; row < row_end; ++row) {
    const auto position = static_cast<std::size_t>(args.rows[row].position);
    const auto block =
        static_cast<std::size_t>(args.rows[row].blocks[position / layout.block_tokens]);
    const std::size_t token = position % layout.block_tokens;
    std::byte* base = args.pool + block * layout.block_bytes();
    for (std::size_t h = kv_head_begin; h < kv_head_end; ++h) {
      const std::size_t at = h * layout.head_dim;
      kv_write_head(layout, args.k + row * args.k_stride + at, true, token,
                    base + layout.k_offset(args.layer, h));
      kv_write_head(layout, args.v + row * args.v_stride + at, false, token,
                    base + layout.v_offset(args.layer, h));
    }
  }
}

}  // namespace baton::BATON_ISA_NS
