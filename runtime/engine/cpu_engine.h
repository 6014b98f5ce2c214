#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/isa.h"
#include "runtime/actor/collective.h"
#include "runtime/actor/engine.h"
#include "runtime/base/result.h"
#include "runtime/engine/compute.h"
#include "runtime/engine/group_channel.h"
#include "runtime/engine/kv_store.h"
#include "runtime/engine/llama_forward.h"
#include "runtime/engine/llama_weights.h"
#include "runtime/engine/numerics.h"
#include "runtime/engine/output_head.h"
#include "runtime/engine/sampler.h"
#include "runtime/engine/step_rows.h"
#include "runtime/engine/weight_sets.h"
#include "runtime/engine/weights_loader.h"

namespace baton {

struct CpuEngineOptions {
  ActivationMode activations = ActivationMode::int8;
  KvDtype kv_dtype = KvDtype::bf16;  // default_kv_dtype(activations) is the usual one
  uint32_t block_tokens = 16;        // 16, 32 or 64
  uint64_t kv_cache_bytes = uint64_t{512} << 20;
  std::shared_ptr<WeightsLoader> loader;  // of the process's engines; none: one of its own
  size_t weight_sets_max = 2;
  uint32_t kv_blocks = 0;  // if not 0, instead of kv_cache_bytes
  uint32_t step_tokens_max = 2048;
  uint32_t context_max = 0;  // 0: what the model was trained for
  const Ops* ops = nullptr;  // null: the process's choice
  // A step takes at least so long, for tests of what happens to requests that run.
  int64_t step_us_min = 0;
  // The other ranks of the instance, gathered, with a window of CpuEngine::window_bytes and a part
  // for each stage. Null for an instance of one rank.
  std::shared_ptr<Collective> group;
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
//
// An instance of several ranks is an engine on each of them, over the weights of their parts and
// one group. The actor is on the first, which alone takes batches and chooses tokens; the others
// follow(). All pools are in the window, so that the first rank can move the KV of the whole
// instance. When the group breaks there are no more results: the batch under way has none, and the
// rank must end (Collective::on_broken tells it).
class CpuEngine final : public Engine {
 public:
  using Post = std::function<void(Mail)>;

  // Errors: invalid_argument (an option), unavailable (memory).
  static Result<std::unique_ptr<CpuEngine>> create(std::shared_ptr<const LlamaWeights> weights,
                                                   std::shared_ptr<Compute> compute,
                                                   const CpuEngineOptions& options, Post post);
  // Waits for the batch under way, whose StepDone is still posted, and tells the others to leave.
  ~CpuEngine() override;

  // Bytes of the window that an instance of such ranks shares; the same on every rank.
  static Result<uint64_t> window_bytes(const ModelConfig& config, const CpuEngineOptions& options,
                                       const PartOf& of);
  // What every rank but the first does, on the compute thread, while the caller waits: obeys the
  // first until it says leave. Fails when the group breaks.
  Result<void> follow();

  // Runs a prefill and decode steps of the usual sizes and waits, so that weights, caches and
  // working memory are faulted in before the first request. No batch may be under way. Only behind
  // it may anything from elsewhere be put into the pools of an instance's other ranks: they have
  // emptied them by then.
  void warm_up();

  const Placement& placement() const override { return placement_; }
  const KvGeometry& geometry() const override { return store().geometry(); }
  uint32_t block_count() const override { return store().block_count(); }
  using Engine::block_bytes;
  std::span<std::byte> block_bytes(uint32_t rank, BlockId block) override {
    return stores_[rank].block(block);
  }
  uint32_t step_tokens_max() const override { return limits_.tokens_max; }
  uint32_t context_max() const override { return limits_.context_max; }
  uint32_t vocabulary() const override { return limits_.vocabulary; }
  bool busy() const override { return busy_.load(std::memory_order_acquire); }
  void submit(Batch batch, ActorId reply_to) override;
  uint64_t numerics_id() const override { return cpu_numerics_id(mode_, geometry().dtype); }
  uint64_t model_hash() const override { return model_hash_; }
  void prepare_weights(const WeightsOrder& order, ActorId reply_to) override;
  void commit_weights(uint64_t version) override;
  void drop_weights(uint64_t version) override;
  std::vector<WeightsInfo> weights() const override;

 private:
  CpuEngine(std::shared_ptr<const LlamaWeights> weights, std::shared_ptr<Compute> compute,
            const CpuEngineOptions& options, const StepLimits& limits, Placement placement,
            Post post);
  Result<void> allocate(const CpuEngineOptions& options);
  Result<void> allocate_shared();

  bool leads() const { return of_.rank == 0; }
  const KvStore& store() const { return stores_[of_.rank]; }
  std::shared_ptr<const LlamaWeights> set_of(const Batch& batch) const;

  // Both return false when the group is broken: there are no results.
  bool compute_step(Team& team, const Batch& batch);
  bool compute_part(Team& team, const Batch& batch, const OutputHead::Consumer& consumer);
  Result<bool> obey(Team& team, const GroupCommand& command);
  void copy_blocks(const Batch& batch, const TeamMember& me);

  // ---- engine_weights.cpp
  void start_loading(const WeightsOrder& order, ActorId reply_to);
  void finish_preparing(const WeightsOrder& order, ActorId reply_to,
                        const Result<WeightsLoader::Set>& set, int64_t took_us);
  void tell(ActorId reply_to, const WeightsPrepared& prepared) const;
  // First rank: says it to the others, when the steps before are done.
  void order_group(GroupOrder order, std::string body);
  // First rank, on the loader's thread: waits until every other rank has prepared its part, and
  // puts the first failure among them into `prepared`.
  void await_group(const WeightsOrder& order, ActorId reply_to, WeightsPrepared& prepared);
  Result<bool> obey_weights(const GroupCommand& command);
  void consume(int thread, std::size_t index, std::span<const float> logits,
               const VocabSummary& summary);
  void warm_up_step(uint32_t rows, uint32_t tokens);

  const PartOf of_;            // which rank this is
  const uint64_t model_hash_;  // of the set that it started with
  // Sets, loader and compute thread are shared with the other engines of the process.
  std::shared_ptr<Compute> compute_;
  const ActivationMode mode_;
  const int64_t step_us_min_;
  const Ops& ops_;
  const StepLimits limits_;
  const std::function<void(uint64_t, std::span<const float>)> on_logits_;
  const Post post_;
  const Placement placement_;
  const std::shared_ptr<Collective> group_;
  std::unique_ptr<GroupChannel> channel_;  // null without a group
  StepGroup step_group_;
  MappedMemory memory_;  // of the buffers, without a group
  StepBuffers buffers_;
  std::vector<KvStore> stores_;  // of each rank of the instance
  StepRows rows_;
  std::unique_ptr<LlamaForward> forward_;
  std::unique_ptr<OutputHead> head_;
  std::vector<Sampler> samplers_;  // per thread

  mutable std::mutex sets_mutex_;  // of the next three; preparations end on the loader's thread
  WeightSets<LlamaWeights> sets_;
  std::map<uint64_t, WeightsLoader::Interest> interests_;  // by version
  std::map<uint64_t, WeightsPrepared> reports_;            // not the first rank: by ticket
  std::atomic<bool> leaving_{false};

  std::atomic<bool> busy_{false};
  std::shared_ptr<const LlamaWeights> weights_;  // of the batch under way
  Batch batch_;                                  // under way; the compute thread's while busy
  ActorId reply_to_;                             // of it
  const Batch* current_ = nullptr;               // the step that the team computes
  StepDone done_;                                // its results
  std::vector<uint8_t> failed_;                  // per wanted logits: not finite
  std::shared_ptr<WeightsLoader> loader_;  // last: it goes first, and with it what it may call
};

}  // namespace baton
