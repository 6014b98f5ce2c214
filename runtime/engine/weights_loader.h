#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "runtime/actor/weights.h"
#include "runtime/base/result.h"
#include "runtime/engine/llama_weights.h"

namespace baton {

// Brings sets of weights for the engines of one process, which share them: one thread at low
// priority, so that a step never waits for it, does one after another. Functions are thread-safe.
class WeightsLoader {
 public:
  using Set = std::shared_ptr<const LlamaWeights>;
  // Called on the loader's thread.
  using Done = std::function<void(Result<Set> set, int64_t took_us)>;
  // One caller's interest in an order; to let go of it calls it off, unless another engine of the
  // process has the same order. `done` may still be called when it is under way already.
  using Interest = std::shared_ptr<void>;

  // `served` is what the sets have to fit; of them only the part of one rank is packed.
  WeightsLoader(ModelIdentity served, const PartOf& of);
  // Calls off what is under way and waits for it.
  ~WeightsLoader();
  WeightsLoader(const WeightsLoader&) = delete;
  WeightsLoader& operator=(const WeightsLoader&) = delete;

  // Orders with the same ticket are one: a set that is there, or on its way, is shared.
  [[nodiscard]] Interest load(const WeightsOrder& order, Done done);
  // Waits until no `done` is being called: those whose interest is gone are not called any more.
  void quiesce();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace baton
