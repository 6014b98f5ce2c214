#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats.h"
#include "kernels/kv_layout.h"
#include "kernels/packed.h"

namespace baton {

// Where a linear layer writes: element (row r, output n) at data[r * stride + n]. With add the
// product is added to what is there (one rounded sum), which is the residual connection.
struct LinearOut {
  float* data = nullptr;
  std::size_t stride = 0;
  bool add = false;
};

// One row of attention or of a KV write: the blocks of its sequence and its absolute position.
// Rows that follow each other with the same `blocks` and ascending positions share their loads.
struct KvRow {
  const std::int32_t* blocks = nullptr;  // pool block of tokens [i * block_tokens, ...)
  std::int32_t position = 0;
};

struct KvWriteArgs {
  const float* k = nullptr;  // (rows, kv_heads, head_dim), after RoPE; row stride k_stride floats
  const float* v = nullptr;
  std::size_t k_stride = 0;
  std::size_t v_stride = 0;
  const KvRow* rows = nullptr;
  std::byte* pool = nullptr;  // block b starts at pool + b * layout.block_bytes(); 64-byte aligned
  KvLayout layout;
  std::size_t layer = 0;
};

struct AttentionArgs {
  const float* q = nullptr;  // (rows, heads, head_dim), after RoPE; row stride q_stride floats
  float* out = nullptr;      // (rows, heads, head_dim); row stride out_stride floats
  std::size_t q_stride = 0;
  std::size_t out_stride = 0;
  const KvRow* rows = nullptr;
  const std::byte* pool = nullptr;
  KvLayout layout;
  std::size_t layer = 0;
  std::size_t heads = 0;  // query heads of q and out
  // Query heads of one kv-head, and how many of the first kv-head's come before the first of q: a
  // rank may own only some of them. 0: heads / layout.kv_heads, which divides it.
  std::size_t group = 0;
  std::size_t skipped = 0;
  float scale = 1;  // 1 / sqrt(head_dim)
  // What the caller's next call will read first: its keys and values are asked for meanwhile. Only
  // a hint; null: none.
  const KvRow* next_row = nullptr;
  std::size_t next_kv_head = 0;
};

// Of one tile of 1,024 logits (the last may be shorter).
inline constexpr std::size_t kVocabTile = 1024;
struct VocabTile {
  float max;            // largest logit; NaN if any is NaN or infinite
  float sum;            // of exp(logit - max)
  std::int32_t argmax;  // lowest id with that logit
};

// The op list: the maths of a Llama forward pass. Every table gives the same bits as the scalar
// one (numerics.md). Ops are single-threaded over the range that they are given, touch nothing
// outside it and allocate nothing; the caller divides ranges among its threads. Rows, tiles,
// heads: half-open ranges. Must run with the floating-point mode of fp_mode.h.
struct Ops {
  const char* name;

  // out[0..w.cols) = row `row` of w as f32 (token embedding).
  void (*embed)(const PackedMatrix& w, std::size_t row, float* out);

  // out[i] = x[i] * (r * weight[i]), r = 1 / sqrt(sum(x^2) / n + eps); one row. out may be x.
  void (*rms_norm)(const float* x, const float* weight, std::size_t n, float eps, float* out);

  // Quantises rows x blocks (of 32 columns) of x, row stride x_stride floats, into dst.
  void (*quantize)(const float* x, std::size_t x_stride, std::size_t row_begin, std::size_t row_end,
                   std::size_t block_begin, std::size_t block_end, const QuantRows& dst);

  // out[r][n] = x[r] . w[n] for all rows of x, n in tiles [tile_begin, tile_end) of 16 outputs
  // (not beyond w.rows). w.type is q4_0, q4_1 or q8_0. Rule 1.
  void (*linear_q8)(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,
                    std::size_t tile_begin, std::size_t tile_end, std::byte* scratch);

  // The same with f32 activations, x row stride x_stride floats, for every w.type. Rule 3: per
  // output one chain of fma over ascending columns, weights dequantised as the format says.
  void (*linear_f32)(const PackedMatrix& w, const float* x, std::size_t x_stride, std::size_t rows,
                     const LinearOut& out, std::size_t tile_begin, std::size_t tile_end,
                     std::byte* scratch);

  // Rotates neighbouring pairs of the first rope_dim dims of `heads` vectors in place. `table` is
  // the position's row of a RopeTable (rope.h).
  void (*rope)(float* x, std::size_t heads, std::size_t head_dim, std::size_t rope_dim,
               const float* table);

  // Rounds K and V of rows to the KV type and stores them in their blocks.
  void (*kv_write)(const KvWriteArgs& args, std::size_t row_begin, std::size_t row_end,
                   std::size_t kv_head_begin, std::size_t kv_head_end);

  // out = softmax(scale * q . K) . V over positions 0..row.position, by rule 6, for rows x query
  // heads. K and V of those positions must have been written. scratch: attention_scratch_bytes().
  void (*attention)(const AttentionArgs& args, std::size_t row_begin, std::size_t row_end,
                    std::size_t head_begin, std::size_t head_end, std::byte* scratch);

  // out[i] = (gate[i] * sigmoid(gate[i])) * up[i]. out may be gate or up.
  void (*silu_mul)(const float* gate, const float* up, std::size_t n, float* out);
  // out[i] = a[i] + b[i]. out may be a or b.
  void (*add)(const float* a, const float* b, std::size_t n, float* out);

  // stats[t] of tiles t in [tile_begin, tile_end) of n logits.
  void (*vocab_tiles)(const float* logits, std::size_t n, std::size_t tile_begin,
                      std::size_t tile_end, VocabTile* stats);
  // The k largest of x by (value descending, id ascending): ids[0..k), best first; returns how
  // many (k, or n if that is less). NaN counts as -inf.
  std::size_t (*top_k)(const float* x, std::size_t n, std::size_t k, std::int32_t* ids);

  // The polynomials by themselves, elementwise (math.h of cpu/ states domains and errors).
  void (*exp)(const float* x, std::size_t n, float* out);
  void (*log)(const float* x, std::size_t n, float* out);
  void (*sin)(const float* x, std::size_t n, float* out);
  void (*cos)(const float* x, std::size_t n, float* out);
  void (*sigmoid)(const float* x, std::size_t n, float* out);
};

// Scratch for one thread in one call; 64-byte aligned. Linear: for any number of rows.
std::size_t linear_scratch_bytes(std::size_t cols) noexcept;
std::size_t attention_scratch_bytes(std::size_t heads, std::size_t kv_heads,
                                    std::size_t head_dim) noexcept;

}  // namespace baton
