#include "runtime/engine/step_planner.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {
namespace {

void plan_decode(const StepBudget& budget, std::span<const uint64_t> rows, bool prompts_wait,
                 StepPlan& plan) {
  const uint32_t kept = prompts_wait ? std::min(budget.prefill_tokens_kept, budget.tokens_max) : 0;
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
  plan_decode(budget, decode_rows, prompts_wait, plan);
  // What a step takes in longer, every decoded token of it waits: prompts get a share.
  const uint32_t left = budget.tokens_max - plan.tokens;
  const uint32_t end =
      plan.tokens + (plan.decode.empty() ? left : std::min(left, budget.prefill_tokens_max));
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
