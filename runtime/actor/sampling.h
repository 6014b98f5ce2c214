#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/actor/message.h"

namespace baton {

// How the next token is chosen from its logits (numerics.md, rule 9). Filters apply in this order:
// penalties and biases, temperature, top-k, top-p, min-p.
struct SamplingParams {
  float temperature = 0;         // 0 = greedy (ties go to the lowest id)
  int32_t top_k = 0;             // 0 = off
  float top_p = 1;               // (0, 1]
  float min_p = 0;               // [0, 1]
  float repetition_penalty = 1;  // > 0; over prompt and output
  float presence_penalty = 0;    // over output only
  float frequency_penalty = 0;   // over output only
  std::vector<std::pair<TokenId, float>> logit_bias;
  uint64_t seed = 0;             // always set: the gateway mints one where the client gave none
  int32_t top_logprobs = -1;     // -1 none; 0 the chosen token's; k > 0 also the k best
  int32_t prompt_logprobs = -1;  // likewise for every prompt token but the first
  BATON_FIELDS(temperature, top_k, top_p, min_p, repetition_penalty, presence_penalty,
               frequency_penalty, logit_bias, seed, top_logprobs, prompt_logprobs)
};

// When a sequence ends, apart from stop strings, which the gateway applies to the text.
struct StopParams {
  uint32_t max_tokens = 0;        // new tokens, from the first; 0 = only score the prompt
  uint32_t min_tokens = 0;        // no end by id before this many
  std::vector<TokenId> stop_ids;  // end-of-sequence ids and the request's own; may be empty
  BATON_FIELDS(max_tokens, min_tokens, stop_ids)
};

enum class Finish : uint8_t { none = 0, stop = 1, length = 2, cancelled = 3, error = 4 };
constexpr bool enum_valid(Finish f) {
  return f <= Finish::error;
}

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;  // natural logarithm, of the raw logits
  BATON_FIELDS(id, logprob)
};

}  // namespace baton
