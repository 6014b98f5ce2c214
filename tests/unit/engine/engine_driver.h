#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/actor/wire.h"
#include "runtime/base/check.h"
#include "runtime/engine/cpu_engine.h"

namespace baton {

// Drives a CpuEngine from one thread, as its actor would: submits a batch and waits for its mail.
// Also hands out blocks, ever new ones, from the first on.
class EngineDriver {
 public:
  static Result<std::unique_ptr<EngineDriver>> create(std::shared_ptr<const LlamaWeights> weights,
                                                      std::shared_ptr<Compute> compute,
                                                      const CpuEngineOptions& options) {
    std::unique_ptr<EngineDriver> driver(new EngineDriver);
    Result<std::unique_ptr<CpuEngine>> engine =
        CpuEngine::create(std::move(weights), std::move(compute), options,
                          [d = driver.get()](Mail mail) { d->receive(std::move(mail)); });
    if (!engine) return engine.error();
    driver->engine_ = std::move(*engine);
    return driver;
  }

  CpuEngine& engine() { return *engine_; }

  // Blocks for `tokens` positions; after reset() from the first one again.
  std::vector<BlockId> take_blocks(std::size_t tokens) {
    std::vector<BlockId> blocks;
    for (uint32_t i = engine_->geometry().blocks_for(tokens); i > 0; --i) {
      require(next_block_ < engine_->block_count(), "the KV cache is large enough");
      blocks.push_back({next_block_++});
    }
    return blocks;
  }
  void reset_blocks() { next_block_ = 0; }

  StepDone step(std::vector<BatchRow> rows, std::vector<BlockCopy> copies = {}) {
    Batch batch;
    batch.step = {++step_};
    batch.rows = std::move(rows);
    batch.copies = std::move(copies);
    engine_->submit(std::move(batch), ActorId{0, kPrefillSlot, 1});
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [&] { return mail_.has_value(); });
    Mail mail = std::move(*mail_);
    mail_.reset();
    require(mail.envelope.kind == StepDone::kind && mail.envelope.to.slot == kPrefillSlot,
            "StepDone comes to the sender");
    Result<StepDone> done = decode_body<StepDone>(mail.body, Limits{});
    require(done.ok() && done->step.value == step_, "StepDone is that of this step");
    return std::move(*done);
  }

 private:
  EngineDriver() = default;

  // Not the macro: doctest has one of the same name, and this header is included beside either.
  static void require(bool condition, const char* what) {
    if (!condition) check_failed(__FILE__, __LINE__, what, nullptr);
  }

  void receive(Mail mail) {
    const std::lock_guard lock(mutex_);
    mail_ = std::move(mail);
    arrived_.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::optional<Mail> mail_;
  uint64_t step_ = 0;
  uint32_t next_block_ = 0;
  std::unique_ptr<CpuEngine> engine_;  // last: its destructor may still post
};

}  // namespace baton
