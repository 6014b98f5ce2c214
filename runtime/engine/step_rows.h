#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "runtime/actor/engine.h"
#include "runtime/layout/geometry.h"

namespace baton {

// Logits that a step has to compute: those after one token.
struct WantedLogits {
  static constexpr int32_t kSample = -1;
  uint32_t token = 0;              // index among the tokens of the step
  uint32_t row = 0;                // of the batch
  int32_t prompt_index = kSample;  // they score tokens[prompt_index + 1] of the row, or choose one
};

// Neighbouring tokens of one sequence: the unit in which attention is shared out.
struct TokenRun {
  uint32_t begin = 0;
  uint32_t end = 0;
};

struct StepLimits {
  uint32_t tokens_max = 0;   // of one step
  uint32_t context_max = 0;  // positions of one sequence
  uint32_t vocabulary = 0;
  uint32_t block_count = 0;
};

// A Batch as the forward pass sees it: one flat list of tokens, whatever rows they belong to. Owned
// by an engine and filled anew for each step, on the compute thread, in memory reserved at start.
class StepRows {
 public:
  StepRows(const StepLimits& limits, const KvGeometry& geometry);

  // CHECKs that the batch keeps the limits and that blocks cover the positions.
  void fill(const Batch& batch);

  std::size_t size() const { return tokens_.size(); }
  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<KvRow>& kv() const { return kv_; }  // per token: position and blocks
  const std::vector<WantedLogits>& wanted() const { return wanted_; }
  const std::vector<TokenRun>& runs() const { return runs_; }
  // Every token belongs to a sequence of its own, as in a step that only decodes.
  bool independent() const { return independent_; }
  // Blocks whose first position this step writes and whose last it does not: to be zeroed first.
  const std::vector<BlockId>& fresh_blocks() const { return fresh_blocks_; }

 private:
  void add_row(const BatchRow& row, uint32_t index);
  void add_wanted(const BatchRow& row, uint32_t index, std::size_t first);
  void cut_runs();

  StepLimits limits_;
  KvGeometry geometry_;
  std::vector<TokenId> tokens_;
  std::vector<KvRow> kv_;
  std::vector<int32_t> blocks_;  // of all rows, one behind the other; kv_ points into it
  std::vector<WantedLogits> wanted_;
  std::vector<TokenRun> runs_;
  std::vector<BlockId> fresh_blocks_;
  bool independent_ = true;
};

}  // namespace baton
