#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"
#include "kernels/random.h"

namespace baton {

// Log-softmax of a row of logits, from the tiles of Ops::vocab_tiles chained in order.
struct VocabSummary {
  float max = 0;
  float log_sum = 0;        // log of sum of exp(logit - max)
  std::int32_t argmax = 0;  // lowest id with the largest logit
  bool finite = false;      // false: NaN or infinity among the logits; nothing else holds then
};
VocabSummary summarize_vocab(const Ops& ops, const VocabTile* tiles, std::size_t count) noexcept;
inline float log_probability(const VocabSummary& s, float logit) {
  return (logit - s.max) - s.log_sum;
}

// A token that penalties concern.
struct TokenCount {
  std::int32_t id = 0;
  std::uint32_t output_count = 0;  // times in the output so far; 0: only in the prompt
};
struct TokenBias {
  std::int32_t id = 0;
  float bias = 0;
};

// How to choose a token. Filters apply in the order of the members.
struct SampleArgs {
  // Repetition over all of `counts` (> 0: x / r, else x * r), then frequency * output_count, then
  // presence if output_count > 0. Each id at most once, in any order.
  const TokenCount* counts = nullptr;
  std::size_t counts_n = 0;
  float repetition_penalty = 1;
  float frequency_penalty = 0;
  float presence_penalty = 0;
  const TokenBias* biases = nullptr;
  std::size_t biases_n = 0;
  const std::uint32_t* allowed = nullptr;  // bit i % 32 of word i / 32: token i may be chosen
  float temperature = 0;                   // 0: the largest, lowest id; nothing below matters
  std::int32_t top_k = 0;                  // 0 or less: off
  float top_p = 1;
  float min_p = 0;
  double uniform = 0;  // the row's random number
};

// Bytes of scratch for one call of sample(), 64-byte aligned.
std::size_t sample_scratch_bytes(std::size_t vocabulary) noexcept;

// The token chosen from raw logits[0..n), or -1 if nothing may be chosen (NaN, or all masked).
// The logits stay as they are. Pure; the same bits with every Ops table.
std::int32_t sample(const Ops& ops, const float* logits, std::size_t n, const SampleArgs& args,
                    std::byte* scratch) noexcept;

}  // namespace baton
