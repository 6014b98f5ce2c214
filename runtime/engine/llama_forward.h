#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kernels/ops.h"
#include "kernels/team.h"
#include "runtime/base/result.h"
#include "runtime/engine/kv_store.h"
#include "runtime/engine/linear.h"
#include "runtime/engine/llama_weights.h"
#include "runtime/engine/mapped_memory.h"
#include "runtime/engine/step_buffers.h"
#include "runtime/engine/step_group.h"
#include "runtime/engine/step_rows.h"

namespace baton {

struct ForwardOptions {
  const Ops* ops = nullptr;
  ActivationMode mode = ActivationMode::int8;
  int threads = 1;
  StepLimits limits;
};

// The layers of a Llama model over the tokens of a step: from token ids to the residual stream
// behind the last layer, reading and writing the KV store. Owns the working memory of this rank,
// sized at start; what ranks write for each other is in StepBuffers.
//
// Ranks and threads divide outputs only, never a sum, so a token's bits depend on nothing but the
// tokens of its own sequence before it (numerics.md): not on the step's other rows, nor on chunks,
// ranks, threads or instruction set. An instance of several ranks gathers four times a layer: after
// attention, its output matrix, the activation and `down`; each rank norms all rows for itself.
// Stages of a pipeline take turns; the residual stream is where the next one finds it. Used on the
// compute thread and its team, one step at a time.
class LlamaForward {
 public:
  static Result<std::unique_ptr<LlamaForward>> create(const LlamaWeights& weights,
                                                      const KvStore& store, StepBuffers& buffers,
                                                      const ForwardOptions& options);

  // Called by the leader of the team before it runs a step with this set of weights, which has the
  // sizes and the part of the one that the pass was made with and outlives the step.
  void begin_step(const LlamaWeights& weights);
  // Called by every thread of the team; ends with a barrier. The residual stream behind the last
  // layer is in the buffers then, unless the group is broken.
  void run(const StepRows& step, const TeamMember& me);

 private:
  LlamaForward(const LlamaWeights& weights, const KvStore& store, StepBuffers& buffers,
               const ForwardOptions& options);
  Result<MappedMemory> allocate();

  // The steps of the pass, each by all threads. Those whose result others read end with a barrier.
  void run_stage(const StepRows& step, const TeamMember& me);
  void zero_fresh_blocks(const StepRows& step, const TeamMember& me);
  void embed(const StepRows& step, const TeamMember& me);
  void attention(std::size_t layer, const StepRows& step, const TeamMember& me);
  void feed_forward(std::size_t layer, std::size_t rows, const TeamMember& me);
  LinearInput norm_rows(const std::vector<float>& weight, std::size_t rows, bool quantize,
                        const TeamMember& me);
  void attend_all(std::size_t layer, const StepRows& step, const TeamMember& me);
  void gather_attended(std::size_t layer, const StepRows& step, const TeamMember& me);
  void add_linear(const PackedMatrix& matrix, const LinearInput& in, const TeamMember& me);

  // Parts of one thread. kv-heads are counted within the part of this rank.
  Range own_heads(std::size_t kv_head) const;  // query heads, likewise
  void rotate_and_write(std::size_t layer, const StepRows& step, TokenRun tokens, Share kv_heads);
  // What a thread takes of attention: a run of tokens of one sequence for one kv-head.
  struct AttentionItem {
    TokenRun tokens;
    std::size_t kv_head;
  };
  void attend(std::size_t layer, const StepRows& step, const AttentionItem& now,
              const std::optional<AttentionItem>& next, int thread);
  void gate_up(const LlamaLayer& layer, const LinearInput& in, std::size_t row, std::size_t count,
               Share blocks, int thread);

  const LlamaWeights* weights_;  // of the present step
  const KvStore& store_;
  StepBuffers& buffers_;
  const ModelPart part_;  // of every set
  const Ops& ops_;
  const ActivationMode mode_;
  const int threads_;
  const StepLimits limits_;
  const std::size_t hidden_;
  const std::size_t ffn_;
  const std::size_t head_dim_;
  const std::size_t group_;           // query heads of one kv-head
  const std::size_t attended_width_;  // heads * head_dim, of the whole model
  const std::size_t query_width_;     // own query heads * head_dim
  const std::size_t kv_width_;        // own kv_heads * head_dim
  const std::size_t qkv_width_;
  // All ranks' query heads of any kv-head are whole blocks, so that whoever attends quantises.
  const bool heads_fill_blocks_;

  MappedMemory memory_;              // of everything below
  float* x_ = nullptr;               // (tokens, hidden) residual stream; of buffers_
  OwnedInput attended_;              // (tokens, attended_width); of buffers_, `quant` perhaps not
  OwnedInput activated_;             // (tokens, ffn); of buffers_
  OwnedInput normed_;                // (tokens, hidden)
  float* qkv_ = nullptr;             // (tokens, query_width + 2 * kv_width)
  std::vector<float*> gate_;         // per thread (kFfnRows * kFfnColumns)
  std::vector<float*> up_;           // per thread (kFfnRows * kFfnColumns)
  float* rope_ = nullptr;            // (positions, 2 * head_dim)
  std::vector<OwnedInput> alone_;    // per thread (kRowsAlone, hidden)
  std::vector<std::byte*> scratch_;  // per thread, of ops
  std::unique_ptr<std::atomic<std::size_t>[]> next_item_;  // per layer: attention is shared out
};

}  // namespace baton
