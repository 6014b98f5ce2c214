#include "runtime/engine/output_head.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/engine/scratch_plan.h"

namespace baton {

OutputHead::OutputHead(std::shared_ptr<const LlamaWeights> weights, const ForwardOptions& options)
    : weights_(std::move(weights)),
      ops_(*options.ops),
      mode_(options.mode),
      hidden_(weights_->config().hidden),
      vocabulary_(weights_->config().vocab),
      vocab_tiles_((vocabulary_ + kVocabTile - 1) / kVocabTile),
      scratch_(static_cast<std::size_t>(options.threads)) {}

Result<std::unique_ptr<OutputHead>> OutputHead::create(std::shared_ptr<const LlamaWeights> weights,
                                                       const ForwardOptions& options) {
  std::unique_ptr<OutputHead> head(new OutputHead(std::move(weights), options));
  Result<MappedMemory> memory = head->allocate();
  if (!memory) return memory.error();
  head->memory_ = std::move(*memory);
  return head;
}

Result<MappedMemory> OutputHead::allocate() {
  ScratchPlan plan;
  plan.add(normed_f32_, kLogitRows * hidden_);
  plan.add(normed_.quant.data, hidden_ % kQuantBlock == 0 ? quant_bytes(kLogitRows, hidden_) : 0);
  plan.add(logits_, kLogitRows * vocabulary_);
  plan.add(tiles_, kLogitRows * vocab_tiles_);
  plan.add(finite_, kLogitRows);
  for (std::byte*& scratch : scratch_) plan.add(scratch, linear_scratch_bytes(hidden_));
  Result<MappedMemory> memory =
      plan.allocate({"the memory for logits", "use a model with a smaller vocabulary"});
  normed_.f32 = normed_f32_;
  normed_.stride = hidden_;
  normed_.quant.cols = hidden_;
  return memory;
}

void OutputHead::run(const float* residual, const StepRows& step, const TeamMember& me,
                     const Consumer& consumer) {
  const std::span<const WantedLogits> all(step.wanted());
  for (std::size_t first = 0; first < all.size(); first += kLogitRows) {
    const std::size_t rows = std::min(kLogitRows, all.size() - first);
    if (first > 0) me.meet();  // the rows before are consumed
    norm(residual, all.subspan(first, rows), me);
    me.meet();
    score(rows, me);
    me.meet();
    const Share mine = me.share_of(rows);
    for (std::size_t i = mine.begin; i < mine.end; ++i) {
      consumer(me.thread, first + i, {logits_ + i * vocabulary_, vocabulary_}, summary(i));
    }
  }
}

void OutputHead::norm(const float* residual, std::span<const WantedLogits> wanted,
                      const TeamMember& me) {
  const Share mine = me.share_of(wanted.size());
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    float* row = normed_f32_ + i * hidden_;
    ops_.rms_norm(residual + wanted[i].token * hidden_, weights_->output_norm().data(), hidden_,
                  weights_->config().norm_eps, row);
    // Seen here, because rounding to int8 could make a number of a NaN.
    finite_[i] = std::all_of(row, row + hidden_, [](float x) { return std::isfinite(x); });
  }
  if (mine.begin < mine.end && reads_quant(weights_->output(), mode_)) {
    ops_.quantize(normed_f32_, hidden_, mine.begin, mine.end, 0, hidden_ / kQuantBlock,
                  normed_.quant);
  }
}

// Logits and their statistics, by tiles of the vocabulary, which are whole tiles of the matrix.
void OutputHead::score(std::size_t rows, const TeamMember& me) {
  constexpr std::size_t kMatrixTiles = kVocabTile / kTileRows;
  const Share mine = me.share_of(vocab_tiles_);
  const PackedMatrix& matrix = weights_->output();
  LinearInput in = normed_;
  in.rows = rows;
  in.quant.rows = rows;
  if (mine.begin == mine.end) return;
  run_linear(ops_, mode_, matrix, in, {logits_, vocabulary_, false}, mine.begin * kMatrixTiles,
             std::min(mine.end * kMatrixTiles, matrix.tiles()),
             scratch_[static_cast<std::size_t>(me.thread)]);
  for (std::size_t r = 0; r < rows; ++r) {
    ops_.vocab_tiles(logits_ + r * vocabulary_, vocabulary_, mine.begin, mine.end,
                     tiles_ + r * vocab_tiles_);
  }
}

VocabSummary OutputHead::summary(std::size_t row) const {
  VocabSummary summary = summarize_vocab(ops_, tiles_ + row * vocab_tiles_, vocab_tiles_);
  summary.finite = summary.finite && finite_[row] != 0;
  return summary;
}

}  // namespace baton
