#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/layout/transfer.h"
#include "tests/unit/engine/engine_rig.h"

namespace baton::test {

// An instance's shape; what else it is comes from the options that both sides share.
struct SideShape {
  uint32_t tensor_parallel = 1;
  uint32_t pipeline_parallel = 1;
  uint32_t block_tokens = 16;
};

// Instances by shape, of one model, made when they are first asked for. Owner thread only.
class Instances {
 public:
  explicit Instances(RigOptions common) : common_(std::move(common)) {}

  // The model has that many heads and layers.
  bool possible(const SideShape& shape) const;
  EngineRig& at(const SideShape& shape);

 private:
  struct Made {
    SideShape shape;
    std::unique_ptr<EngineRig> rig;
  };
  RigOptions common_;
  std::vector<Made> made_;
};

// Sequences whose prompts end on, before and behind the boundaries of blocks of every size, with
// and without sampling, penalties, chunks and prompt log-probabilities.
std::vector<Sequence> handoff_sequences();

// How a test moves KV: `reused` says how many tokens of a prompt the target has computed itself
// before, in whole blocks of its own; the others come from the source.
struct Move {
  PairTerms terms{1, 1 << 14, true};
  std::function<uint32_t(std::size_t sequence, uint32_t prompt, uint32_t block_tokens)> reused =
      [](std::size_t, uint32_t, uint32_t) { return 0u; };
  // Which rank of the source is said to hold which part of the cache; empty: what is so.
  std::vector<Box> source_ranks;
};

// What the source says of the prompts and their first tokens; its legs keep their blocks, so that
// they can be handed over many times.
std::vector<Leg> prefill(EngineRig& source, const std::vector<Sequence>& sequences);

// Hands copies of the legs from `source` over to `target` by a routed plan between their placements
// and the mover of one process, into blocks in which everything else is NaN, and goes on there
// until each has `new_tokens` tokens. What the target then has of each sequence.
std::vector<Trace> go_on_at(EngineRig& source, const std::vector<Leg>& legs, EngineRig& target,
                            const Move& move, uint32_t new_tokens);

}  // namespace baton::test
