#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/kv_layout.h"
#include "runtime/actor/engine.h"
#include "runtime/engine/fake_model.h"
#include "runtime/engine/weight_sets.h"

namespace baton {

// One rank with all of the model, blocks of 16 tokens, f32.
Placement whole_placement(const FakeModel& model);

struct FakeEngineOptions {
  FakeModel model;
  Placement placement{};  // of the model's shape; without ranks: whole_placement()
  uint32_t block_count = 64;
  uint32_t step_tokens_max = 256;
  uint32_t context_max = 512;
  uint64_t numerics_id = 1;
  uint64_t model_hash = 1;
  // Runs a function once, after a while. What it runs may not outlive the engine.
  std::function<void(Micros delay, std::function<void()>)> later;
  std::function<void(Mail)> post;
  std::function<Micros(const Batch&)> duration;  // of a step
  std::function<void(const Batch&)> watch;       // before a step reads; may be empty
  std::function<void(Batch&)> change = {};       // of what is submitted; may be empty
  // The digest of the weights that a source has, or what is wrong with it. Empty: fake_weights().
  std::function<Result<uint64_t>(const WeightsSource&)> open_weights = {};
  std::function<Micros()> prepare_duration = {};  // empty: at once, but by `later`
  size_t weight_sets_max = 2;
};

// An Engine that computes the fake model on somebody else's clock, for the simulator and for tests
// of actors, on all ranks of its instance at once: each rank's blocks hold what its part of the
// placement says. All its reads and writes of KV bytes happen at the end of a step, so that a block
// which changes hands too early is noticed. Owner thread only.
class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(FakeEngineOptions options);

  const Placement& placement() const override { return placement_; }
  const KvGeometry& geometry() const override { return geometry_; }
  uint32_t block_count() const override { return options_.block_count; }
  using Engine::block_bytes;
  std::span<std::byte> block_bytes(uint32_t rank, BlockId block) override;
  uint32_t step_tokens_max() const override { return options_.step_tokens_max; }
  uint32_t context_max() const override { return options_.context_max; }
  uint32_t vocabulary() const override { return static_cast<uint32_t>(options_.model.vocabulary); }
  bool busy() const override { return busy_; }
  void submit(Batch batch, ActorId reply_to) override;
  uint64_t numerics_id() const override { return options_.numerics_id; }
  uint64_t model_hash() const override { return options_.model_hash; }
  void prepare_weights(const WeightsOrder& order, ActorId reply_to) override;
  void commit_weights(uint64_t version) override { sets_.commit(version); }
  void drop_weights(uint64_t version) override { sets_.drop(version); }
  std::vector<WeightsInfo> weights() const override { return sets_.list(); }

 private:
  using Weights = uint64_t;  // what the fake model calls so
  void check(const Batch& batch) const;
  void finish(const Batch& batch, uint64_t weights, ActorId reply_to, Micros took);
  void finish_preparing(const WeightsOrder& order, ActorId reply_to, Micros took);
  void tell(ActorId reply_to, MsgKind kind, std::string body);
  RowResult compute(const BatchRow& row, uint64_t weights);
  void write(const BatchRow& row, uint32_t position, TokenId token, uint64_t weights);
  uint64_t absorb(const BatchRow& row, uint32_t position, uint64_t digest);

  // The part of one rank.
  struct Rank {
    Box owned;
    KvLayout layout;
    std::vector<std::byte> store;
  };
  void write_lane(Rank& rank, const BatchRow& row, uint32_t position, uint32_t layer, bool value,
                  uint32_t head, uint64_t lane);
  uint64_t read_lane(const Rank& rank, const BatchRow& row, uint32_t position, uint32_t layer,
                     bool value, uint32_t head) const;

  const FakeEngineOptions options_;
  const Placement placement_;
  const KvGeometry geometry_;  // of the first rank
  std::vector<Rank> ranks_;
  WeightSets<Weights> sets_;
  bool busy_ = false;
};

}  // namespace baton
