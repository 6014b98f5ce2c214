#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "kernels/isa.h"
#include "runtime/actor/engine.h"
#include "runtime/base/result.h"
#include "runtime/engine/compute.h"
#include "runtime/engine/kv_store.h"
#include "runtime/engine/llama_forward.h"
#include "runtime/engine/llama_weights.h"
#include "runtime/engine/numerics.h"
#include "runtime/engine/output_head.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/step_rows.h"

namespace baton {

struct CpuEngineOptions {
  ActivationMode activations = ActivationMode::int8;
  KvDtype kv_dtype = KvDtype::bf16;  // default_kv_dtype(activations) is the usual one
  uint32_t block_tokens = 16;        // 16, 32 or 64
  uint64_t kv_cache_bytes = uint64_t{512} << 20;
  uint32_t kv_blocks = 0;  // if not 0, instead of kv_cache_bytes
  uint32_t step_tokens_max = 2048;
  uint32_t context_max = 0;  // 0: what the model was trained for
  const Ops* ops = nullptr;  // null: the process's choice
  // A step takes at least so long, for tests of what happens to requests that run.
  int64_t step_us_min = 0;
  // For tests and oracles: sees the raw logits of each row that samples, on threads of the team.
  std::function<void(uint64_t key, std::span<const float> logits)> on_logits;
};

// A Llama model on this machine's processor: owns the KV store and all working memory; shares
// weights and compute team with other engines of the process. Called from the actors' thread;
// `post` gets StepDone mail on the compute thread and must be thread-safe.
//
// What the caller of submit() should know, beside Engine:
// - Prompt log-probabilities are those of tokens[1..] of the row, because log P(tokens[0]) follows
//   from a token that is not in it. A prompt computed in chunks gets all of them if each chunk
//   but the first starts with the last token of the chunk before (which is computed again, to the
//   same bits).
// - A block is zeroed by the step that writes its first position. A block that holds earlier
//   positions must have come whole.
// - A row with a numerical error has no token, and no log-probabilities that mean anything.
class CpuEngine final : public Engine {
 public:
  using Post = std::function<void(Mail)>;

  // Errors: invalid_argument (an option), unavailable (memory).
  static Result<std::unique_ptr<CpuEngine>> create(std::shared_ptr<const LlamaWeights> weights,
                                                   std::shared_ptr<Compute> compute,
                                                   const CpuEngineOptions& options, Post post);
  // Waits for the batch under way, whose StepDone is still posted.
  ~CpuEngine() override;

  // Runs a prefill and decode steps of the usual sizes and waits, so that weights, caches and
  // working memory are faulted in before the first request. No batch may be under way.
  void warm_up();

  const Placement& placement() const override { return placement_; }
  const KvGeometry& geometry() const override { return store_.geometry(); }
  uint32_t block_count() const override { return store_.block_count(); }
  using Engine::block_bytes;
  std::span<std::byte> block_bytes(uint32_t rank, BlockId block) override {
    CHECK(rank == 0);
    return store_.block(block);
  }
  uint32_t step_tokens_max() const override { return limits_.tokens_max; }
  uint32_t context_max() const override { return limits_.context_max; }
  uint32_t vocabulary() const override { return limits_.vocabulary; }
  bool busy() const override { return busy_.load(std::memory_order_acquire); }
  void submit(Batch batch, ActorId reply_to) override;
  uint64_t numerics_id() const override { return cpu_numerics_id(mode_, geometry().dtype); }
  uint64_t model_hash() const override { return weights_->model_hash(); }

 private:
  CpuEngine(std::shared_ptr<const LlamaWeights> weights, std::shared_ptr<Compute> compute,
            const CpuEngineOptions& options, const StepLimits& limits, KvStore store, Post post);
  Result<void> allocate(const CpuEngineOptions& options);

  void compute_step(Team& team, const Batch& batch);
  void copy_blocks(const Batch& batch, const TeamMember& me);
  void consume(int thread, std::size_t index, std::span<const float> logits,
               const VocabSummary& summary);
  void warm_up_step(uint32_t rows, uint32_t tokens);

  // Shared with the other engines of the process: see LlamaWeights::load and Compute.
  std::shared_ptr<const LlamaWeights> weights_;
  std::shared_ptr<Compute> compute_;
  const ActivationMode mode_;
  const int64_t step_us_min_;
  const Ops& ops_;
  const StepLimits limits_;
  const std::function<void(uint64_t, std::span<const float>)> on_logits_;
  const Post post_;
  KvStore store_;
  const Placement placement_;
  StepRows rows_;
  std::unique_ptr<LlamaForward> forward_;
  std::unique_ptr<OutputHead> head_;
  std::vector<Sampler> samplers_;  // per thread

  std::atomic<bool> busy_{false};
  Batch batch_;                     // under way; the compute thread's while busy
  ActorId reply_to_;                // of it
  const Batch* current_ = nullptr;  // the step that the team computes
  StepDone done_;                   // its results
  std::vector<uint8_t> failed_;     // per wanted logits: not finite
};

}  // namespace baton
