#include "runtime/engine/step_planner.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {
namespace {

// `least`: tokens without which the first prompt does not advance; 0 = none waits.
void plan_decode(const StepBudget& budget, std::span<const uint64_t> rows, uint32_t least,
                 StepPlan& plan) {
  uint32_t kept = least > 0 ? budget.prefill_tokens_kept : 0;
  if (kept > 0) kept = std::min(std::max(kept, least), budget.tokens_max);
  const size_t room = std::min<size_t>(budget.decode_rows_max, budget.tokens_max - kept);
  const auto taken = rows.first(std::min(rows.size(), room));
  plan.decode.assign(taken.begin(), taken.end());
  plan.tokens += static_cast<uint32_t>(taken.size());
}

// Tokens of `prompt` that go into a step with `room` left; 0 = it has to wait.
uint32_t share_of(const WaitingPrompt& prompt, uint32_t wanted, uint32_t room, bool may_cut) {
  if (wanted <= room) return wanted;
  return may_cut && room >= prompt.chunk_min ? room : 0;
}

}  // namespace

StepPlan plan_step(const StepBudget& budget, std::span<const uint64_t> decode_rows,
                   std::span<const WaitingPrompt> prompts) {
  StepPlan plan;
  const bool prompts_wait = !prompts.empty() && budget.prefill_rows_max > 0;
  const uint32_t least =
      prompts_wait ? std::min(prompts.front().tokens, prompts.front().chunk_min) : 0;
  plan_decode(budget, decode_rows, least, plan);
  // What a step takes in longer, every decoded token of it waits: prompts get a share.
  const uint32_t left = budget.tokens_max - plan.tokens;
  // The first of them at least so much that it advances.
  const uint32_t end =
      plan.tokens +
      (plan.decode.empty() ? left : std::min(left, std::max(budget.prefill_tokens_max, least)));
  for (const WaitingPrompt& prompt : prompts) {
    CHECK(prompt.tokens > 0);
    if (plan.prefill.size() >= budget.prefill_rows_max) break;
    const bool may_cut = plan.prefill.empty() || budget.chunking;
    const uint32_t wanted =
        std::min(prompt.tokens, std::max(budget.chunk_tokens_max, prompt.chunk_min));
    const uint32_t share = share_of(prompt, wanted, end - plan.tokens, may_cut);
    if (share == 0) break;
    plan.prefill.push_back({prompt.key, share});
    plan.tokens += share;
    if (share < wanted) break;
  }
  CHECK(plan.tokens <= budget.tokens_max);
  return plan;
}

}  // namespace baton
