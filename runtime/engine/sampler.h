#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"
#include "kernels/sampling.h"
#include "runtime/actor/engine.h"
#include "runtime/actor/sampling.h"

namespace baton {

// From one row of raw logits to what a request asked for: the token that follows (numerics.md rule
// 9) and log-probabilities, which are always those of the raw logits. Owns the working memory of
// one thread; one per thread. What it returns depends on its arguments only.
class Sampler {
 public:
  Sampler(const Ops& ops, std::size_t vocabulary, std::size_t context_max);

  // Fills the samples of `result`, one for each choice of the row, from the same logits. The random
  // number of a choice is keyed (seed, choice, position of the chosen token), so that it does not
  // depend on which others are there. False if nothing can be chosen: the logits are not finite.
  bool choose(const BatchRow& row, std::span<const float> logits, const VocabSummary& summary,
              RowResult& result);

  // Fills entry `index` of prompt_logprobs, and of prompt_top if asked for: log P(tokens[index + 1]
  // | what comes before it), from the logits after tokens[index]. False as above. `result` has room
  // (begin_result); threads may fill different entries of one result.
  bool score_prompt(const BatchRow& row, std::size_t index, std::span<const float> logits,
                    const VocabSummary& summary, RowResult& result);

  // Makes `result` an empty one with room for all that the row asked for, before threads fill it.
  // What it held before gives its memory.
  static void begin_result(const BatchRow& row, std::size_t vocabulary, RowResult& result);

 private:
  void best_of(std::span<const float> logits, const VocabSummary& summary,
               std::vector<TokenLogprob>& top);
  void count_tokens(const BatchRow& row);
  SampleArgs arguments(const BatchRow& row);
  static double uniform_of(const BatchRow& row, uint32_t choice);

  const Ops& ops_;
  std::vector<int32_t> ids_;        // of top_k
  std::vector<TokenCount> counts_;  // of the row at hand
  std::vector<uint32_t> slots_;     // per id: 1 + its place in counts_, 0 = none
  std::vector<TokenBias> biases_;
  std::vector<std::byte> scratch_memory_;
  std::byte* scratch_ = nullptr;  // aligned, within scratch_memory_
};

}  // namespace baton
