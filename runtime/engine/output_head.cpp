#include "runtime/engine/output_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/engine/scratch_plan.h"

namespace baton {

OutputHead::OutputHead(const LlamaWeights& weights, StepBuffers& buffers,
                       const ForwardOptions& options)
    : weights_(&weights),
      buffers_(buffers),
      part_(weights.part()),
      ops_(*options.ops),
      mode_(options.mode),
      hidden_(weights_->config().hidden),
      vocabulary_(weights_->config().vocab),
      vocab_tiles_((vocabulary_ + kVocabTile - 1) / kVocabTile),
      scratch_(static_cast<std::size_t>(options.threads)) {}

Result<std::unique_ptr<OutputHead>> OutputHead::create(const LlamaWeights& weights,
                                                       StepBuffers& buffers,
                                                       const ForwardOptions& options) {
  std::unique_ptr<OutputHead> head(new OutputHead(weights, buffers, options));
  Result<MappedMemory> memory = head->allocate();
  if (!memory) return memory.error();
  head->memory_ = std::move(*memory);
  return head;
}

Result<MappedMemory> OutputHead::allocate() {
  ScratchPlan plan;
  normed_.plan(plan, kLogitRows, hidden_);
  for (std::byte*& scratch : scratch_) plan.add(scratch, linear_scratch_bytes(hidden_));
  Result<MappedMemory> memory =
      plan.allocate({"the memory for logits", "use a model with a smaller vocabulary"});
  normed_.f32 = normed_.own;
  return memory;
}

void OutputHead::run(const StepRows& step, const TeamMember& me, const Consumer& consumer) {
  const std::span<const WantedLogits> all(step.wanted());
  for (std::size_t first = 0; first < all.size(); first += kLogitRows) {
    const std::size_t rows = std::min(kLogitRows, all.size() - first);
    if (first > 0) me.meet_instance();  // the rows before are consumed
    if (part_.last_stage()) {
      norm(all.subspan(first, rows), me);
      me.meet();
      score(rows, me);
    }
    me.meet_instance();
    if (me.group.broken()) return;
    if (!consumer) continue;
    const Share mine = me.share_of(rows);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      consumer(me.thread, first + i, {buffers_.logits + i * vocabulary_, vocabulary_}, summary(i));
    }
  }
}

// All rows, on every rank: that is cheaper than to gather them.
void OutputHead::norm(std::span<const WantedLogits> wanted, const TeamMember& me) {
  const Share mine = me.share_of(wanted.size());
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    float* row = normed_.own + i * hidden_;
    ops_.rms_norm(buffers_.residual + wanted[i].token * hidden_, weights_->output_norm().data(),
                  hidden_, weights_->config().norm_eps, row);
    // Seen here, because rounding to int8 could make a number of a NaN.
    const bool finite = std::all_of(row, row + hidden_, [](float x) { return std::isfinite(x); });
    if (part_.of.tensor_rank() == 0) buffers_.finite[i] = finite;
  }
  if (mine.begin < mine.end && reads_quant(weights_->output(), mode_)) {
    ops_.quantize(normed_.f32, hidden_, mine.begin, mine.end, 0, hidden_ / kQuantBlock,
                  normed_.quant);
  }
}

// Logits and their statistics, by tiles of the vocabulary, which are whole tiles of the matrix.
void OutputHead::score(std::size_t rows, const TeamMember& me) {
  constexpr std::size_t kMatrixTiles = kVocabTile / kTileRows;
  const Share mine = me.share_of((part_.vocab_rows.size() + kVocabTile - 1) / kVocabTile);
  const PackedMatrix& matrix = weights_->output();
  LinearInput in = normed_;
  in.rows = rows;
  in.quant.rows = rows;
  if (mine.begin == mine.end) return;
  run_linear(ops_, mode_, matrix, in,
             {buffers_.logits + part_.vocab_rows.begin, vocabulary_, false},
             mine.begin * kMatrixTiles, std::min(mine.end * kMatrixTiles, matrix.tiles()),
             scratch_[static_cast<std::size_t>(me.thread)]);
  const std::size_t first = part_.vocab_rows.begin / kVocabTile;
  for (std::size_t r = 0; r < rows; ++r) {
    ops_.vocab_tiles(buffers_.logits + r * vocabulary_, vocabulary_, first + mine.begin,
                     first + mine.end, buffers_.tiles + r * vocab_tiles_);
  }
}

VocabSummary OutputHead::summary(std::size_t row) const {
  VocabSummary summary = summarize_vocab(ops_, buffers_.tiles + row * vocab_tiles_, vocab_tiles_);
  summary.finite = summary.finite && buffers_.finite[row] != 0;
  return summary;
}

}  // namespace baton
