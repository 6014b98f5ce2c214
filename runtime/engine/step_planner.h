#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace baton {

// What one engine step may hold. Prompts and decoded tokens share `tokens_max`.
struct StepBudget {
  uint32_t tokens_max = 0;
  uint32_t decode_rows_max = 0;
  uint32_t prefill_rows_max = 0;
  uint32_t prefill_tokens_kept = 0;  // while a prompt waits, decoding leaves it this many tokens
  uint32_t prefill_tokens_max = UINT32_MAX;  // all prompts of a step, if it decodes too
  uint32_t chunk_tokens_max = UINT32_MAX;    // of one prompt in one step
  bool chunking = false;                     // cut a prompt to fill the rest of a step
};

// A prompt, or what is left of one, that can go into a step.
struct WaitingPrompt {
  uint64_t key = 0;
  uint32_t tokens = 0;     // still to compute, > 0
  uint32_t chunk_min = 1;  // a smaller piece makes no progress, unless it is all that is left
};

struct PlannedPrompt {
  uint64_t key = 0;
  uint32_t tokens = 0;  // of the prompt, from where it stands
  friend bool operator==(const PlannedPrompt&, const PlannedPrompt&) = default;
};

struct StepPlan {
  std::vector<uint64_t> decode;  // keys; one token each
  std::vector<PlannedPrompt> prefill;
  uint32_t tokens = 0;  // of the whole step

  bool empty() const { return decode.empty() && prefill.empty(); }
};

// Decides what the next step computes; pure. Decode rows come first, in the order given (the
// caller puts those that waited longest in front), then prompts, in the order given: nobody
// overtakes. A prompt goes in whole if it fits. If it does not, the first prompt of the step is
// cut, so that a prompt longer than a step and one beside busy decode rows both advance; later
// ones are cut only with `chunking`. One longer than `chunk_tokens_max` goes in by pieces of that
// size, and others beside it. Whatever the inputs, the plan is empty only if there is
// nothing to do or the budget has no room for anything.
StepPlan plan_step(const StepBudget& budget, std::span<const uint64_t> decode_rows,
                   std::span<const WaitingPrompt> prompts);

}  // namespace baton
