#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/actor/engine.h"
#include "runtime/engine/fake_model.h"

namespace baton {

struct FakeEngineOptions {
  FakeModel model;
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
};

// An Engine that computes the fake model on somebody else's clock, for the simulator and for tests
// of actors. All its reads and writes of KV bytes happen at the end of a step, so that a block
// which changes hands too early is noticed. Owner thread only.
class FakeEngine final : public Engine {
 public:
  explicit FakeEngine(FakeEngineOptions options);

  const Placement& placement() const override { return placement_; }
  const KvGeometry& geometry() const override { return options_.model.geometry; }
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

 private:
  void check(const Batch& batch) const;
  void finish(const Batch& batch, ActorId reply_to, Micros took);
  RowResult compute(const BatchRow& row);
  std::byte* at(const BatchRow& row, uint32_t position, uint32_t layer, bool value, uint32_t head);
  void write(const BatchRow& row, uint32_t position, TokenId token);
  uint64_t absorb(const BatchRow& row, uint32_t position, uint64_t digest);

  const FakeEngineOptions options_;
  const Placement placement_;
  std::vector<std::byte> store_;
  bool busy_ = false;
};

}  // namespace baton
