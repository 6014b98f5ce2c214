#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"
#include "runtime/engine/linear.h"
#include "runtime/engine/scratch_plan.h"
#include "runtime/model/model_config.h"

namespace baton {

// An input of a linear layer whose f32 side belongs to the forward pass, which writes it.
struct OwnedInput : LinearInput {
  float* own = nullptr;  // f32, writable

  void plan(ScratchPlan& memory, std::size_t rows_max, std::size_t cols) {
    memory.add(own, rows_max * cols);
    memory.add(quant.data, cols % kQuantBlock == 0 ? quant_bytes(rows_max, cols) : 0);
    quant.rows = rows_max;
    quant.cols = cols;
    stride = cols;
    rows = rows_max;
  }
};

// What the ranks of an instance write for each other within a step, each its own range, and what is
// gathered by meeting: in the window of their group, or in plain memory for one rank.
struct StepBuffers {
  static constexpr std::size_t kLogitRows = 6 * kQuantRows;  // of logits, at a time

  float* residual = nullptr;   // (tokens, hidden)
  OwnedInput attended;         // (tokens, heads * head_dim)
  OwnedInput activated;        // (tokens, ffn); f32 only for layers that read it
  float* logits = nullptr;     // (kLogitRows, vocabulary)
  VocabTile* tiles = nullptr;  // (kLogitRows, tiles of the vocabulary)
  uint8_t* finite = nullptr;   // (kLogitRows): the normed row is

  // `this` must stay where it is until the memory is there; then placed().
  void plan(ScratchPlan& memory, const ModelConfig& config, std::size_t tokens) {
    const std::size_t vocab_tiles = (config.vocab + kVocabTile - 1) / kVocabTile;
    memory.add(residual, tokens * config.hidden);
    attended.plan(memory, tokens, std::size_t{config.heads} * config.head_dim);
    activated.plan(memory, tokens, config.ffn);
    memory.add(logits, kLogitRows * config.vocab);
    memory.add(tiles, kLogitRows * vocab_tiles);
    memory.add(finite, kLogitRows);
  }
  void placed() {
    attended.f32 = attended.own;
    activated.f32 = activated.own;
  }
};

}  // namespace baton
