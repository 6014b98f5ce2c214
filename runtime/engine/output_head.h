#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/sampling.h"
#include "runtime/base/result.h"
#include "runtime/engine/linear.h"
#include "runtime/engine/llama_forward.h"
#include "runtime/engine/llama_weights.h"
#include "runtime/engine/mapped_memory.h"
#include "runtime/engine/step_rows.h"

namespace baton {

// From the residual stream to logits: final norm and output matrix, only for the tokens that need
// them, kLogitRows at a time, so that memory does not grow with the length of a scored prompt. The
// ranks of the last stage compute them, each its tiles of the vocabulary. Owns the working memory
// of this rank. Used as LlamaForward is.
class OutputHead {
 public:
  static constexpr std::size_t kLogitRows = StepBuffers::kLogitRows;

  // Gets each wanted row of logits once, on some thread of the team; index counts step.wanted().
  // If the summary is not finite, neither are the logits, or what they were computed from.
  using Consumer = std::function<void(int thread, std::size_t index, std::span<const float> logits,
                                      const VocabSummary& summary)>;

  static Result<std::unique_ptr<OutputHead>> create(const LlamaWeights& weights,
                                                    StepBuffers& buffers,
                                                    const ForwardOptions& options);

  // As LlamaForward::begin_step.
  void begin_step(const LlamaWeights& weights) { weights_ = &weights; }
  // Called by every thread of the team, after LlamaForward::run. An empty consumer: this rank only
  // computes for the others.
  void run(const StepRows& step, const TeamMember& me, const Consumer& consumer);

 private:
  OutputHead(const LlamaWeights& weights, StepBuffers& buffers, const ForwardOptions& options);
  Result<MappedMemory> allocate();

  void norm(std::span<const WantedLogits> wanted, const TeamMember& me);
  void score(std::size_t rows, const TeamMember& me);
  VocabSummary summary(std::size_t row) const;

  const LlamaWeights* weights_;  // of the present step
  StepBuffers& buffers_;
  const ModelPart part_;  // of every set
  const Ops& ops_;
  const ActivationMode mode_;
  const std::size_t hidden_;
  const std::size_t vocabulary_;
  const std::size_t vocab_tiles_;

  MappedMemory memory_;  // of what follows
  OwnedInput normed_;    // (kLogitRows, hidden)
  std::vector<std::byte*> scratch_;
};

}  // namespace baton
