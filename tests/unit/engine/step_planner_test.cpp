#include "runtime/engine/step_planner.h"

#include <algorithm>
#include <map>
#include <random>

#include <doctest/doctest.h>

namespace baton {
namespace {

StepBudget budget(uint32_t tokens, uint32_t decode_rows, uint32_t prefill_rows) {
  StepBudget b;
  b.tokens_max = tokens;
  b.decode_rows_max = decode_rows;
  b.prefill_rows_max = prefill_rows;
  return b;
}

}  // namespace

TEST_CASE("nothing to do is an empty plan") {
  CHECK(plan_step(budget(64, 8, 8), {}, {}).empty());
}

TEST_CASE("decode rows go first, in order, up to the row limit") {
  const std::vector<uint64_t> rows = {5, 3, 9};
  const StepPlan plan = plan_step(budget(64, 2, 8), rows, {});
  CHECK(plan.decode == std::vector<uint64_t>{5, 3});
  CHECK(plan.tokens == 2);
}

TEST_CASE("prompts share a step up to the token budget and nobody overtakes") {
  const std::vector<WaitingPrompt> prompts = {{1, 30}, {2, 40}, {3, 10}};
  const StepPlan plan = plan_step(budget(64, 0, 8), {}, prompts);
  CHECK(plan.prefill == std::vector<PlannedPrompt>{{1, 30}});
  CHECK(plan.tokens == 30);
}

TEST_CASE("prompts beside decode rows get at most their share, alone the whole step") {
  StepBudget b = budget(64, 8, 8);
  b.prefill_tokens_max = 10;
  b.chunking = true;
  const std::vector<WaitingPrompt> prompts = {{1, 30}, {2, 40}};
  const StepPlan beside = plan_step(b, std::vector<uint64_t>{5, 3}, prompts);
  CHECK(beside.decode.size() == 2);
  CHECK(beside.prefill == std::vector<PlannedPrompt>{{1, 10}});
  CHECK(beside.tokens == 12);
  const StepPlan alone = plan_step(b, {}, prompts);
  CHECK(alone.prefill == std::vector<PlannedPrompt>{{1, 30}, {2, 34}});
}

TEST_CASE("S9: a long prompt goes in by chunks, and others are packed beside it") {
  StepBudget chunked = budget(64, 0, 8);
  chunked.chunking = true;
  chunked.chunk_tokens_max = 20;
  const std::vector<WaitingPrompt> prompts = {{1, 300}, {2, 10}, {3, 50}, {4, 50}};
  const StepPlan plan = plan_step(chunked, {}, prompts);
  CHECK(plan.prefill == std::vector<PlannedPrompt>{{1, 20}, {2, 10}, {3, 20}, {4, 14}});
  // A piece that would make no progress is larger.
  const std::vector<WaitingPrompt> scored = {{1, 300, 30}};
  CHECK(plan_step(chunked, {}, scored).prefill == std::vector<PlannedPrompt>{{1, 30}});
}

TEST_CASE("a prompt that needs several tokens to advance gets them beside decode rows") {
  StepBudget b = budget(8, 8, 8);
  b.prefill_tokens_max = b.prefill_tokens_kept = 1;
  b.chunking = true;
  const std::vector<uint64_t> rows = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::vector<WaitingPrompt> scored = {{20, 30, 2}};
  const StepPlan plan = plan_step(b, rows, scored);
  CHECK(plan.decode.size() == 6);
  CHECK(plan.prefill == std::vector<PlannedPrompt>{{20, 2}});
}

TEST_CASE("with chunking the rest of a step is filled with a piece of the next prompt") {
  StepBudget chunked = budget(64, 0, 8);
  chunked.chunking = true;
  const std::vector<WaitingPrompt> prompts = {{1, 30}, {2, 40}, {3, 10}};
  const StepPlan plan = plan_step(chunked, {}, prompts);
  CHECK(plan.prefill == std::vector<PlannedPrompt>{{1, 30}, {2, 34}});
}

TEST_CASE("T68: a prompt longer than a step is cut, never refused and never stuck") {
  const std::vector<WaitingPrompt> prompts = {{1, 200}};
  CHECK(plan_step(budget(64, 0, 8), {}, prompts).prefill == std::vector<PlannedPrompt>{{1, 64}});
}

TEST_CASE("a prompt beside decode rows is cut to what they leave") {
  const std::vector<uint64_t> rows = {1, 2, 3, 4};
  const std::vector<WaitingPrompt> prompts = {{7, 64}};
  const StepPlan plan = plan_step(budget(64, 8, 8), rows, prompts);
  CHECK(plan.decode.size() == 4);
  CHECK(plan.prefill == std::vector<PlannedPrompt>{{7, 60}});
}

TEST_CASE("waiting prompts keep a share of the step from decode rows") {
  std::vector<uint64_t> rows(64);
  StepBudget kept = budget(64, 64, 8);
  kept.prefill_tokens_kept = 16;
  const std::vector<WaitingPrompt> prompts = {{7, 20}};
  const StepPlan plan = plan_step(kept, rows, prompts);
  CHECK(plan.decode.size() == 48);
  CHECK(plan.prefill == std::vector<PlannedPrompt>{{7, 16}});
  CHECK(plan_step(kept, rows, {}).decode.size() == 64);
}

TEST_CASE("a piece below the smallest useful one waits, unless it is all that is left") {
  const std::vector<uint64_t> rows = {1, 2, 3};
  const std::vector<WaitingPrompt> rest = {{7, 20, 2}};
  CHECK(plan_step(budget(4, 8, 8), rows, rest).prefill.empty());
  const std::vector<WaitingPrompt> last = {{7, 1, 2}};
  CHECK(plan_step(budget(4, 8, 8), rows, last).prefill.size() == 1);
}

TEST_CASE("S2: no step holds more prompts than the row limit") {
  std::vector<WaitingPrompt> prompts;
  for (uint64_t i = 0; i < 40; ++i) prompts.push_back({i, 1});
  CHECK(plan_step(budget(64, 0, 16), {}, prompts).prefill.size() == 16);
}

TEST_CASE("random work: limits hold, order holds, everything gets done") {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 random(seed);
    StepBudget b = budget(2 + random() % 100, random() % 40, 1 + random() % 8);
    b.chunking = random() % 2 == 0;
    b.prefill_tokens_kept = 1 + random() % b.tokens_max;
    std::vector<uint64_t> rows(random() % 50);
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = 1000 + i;
    std::vector<WaitingPrompt> prompts(1 + random() % 12);
    for (size_t i = 0; i < prompts.size(); ++i)
      prompts[i] = {i, 1 + static_cast<uint32_t>(random() % 300)};
    for (int steps = 0; !prompts.empty(); ++steps) {
      REQUIRE(steps < 5000);
      const StepPlan plan = plan_step(b, rows, prompts);
      uint32_t tokens = static_cast<uint32_t>(plan.decode.size());
      REQUIRE(plan.decode.size() <= b.decode_rows_max);
      REQUIRE(plan.prefill.size() <= b.prefill_rows_max);
      REQUIRE(!plan.prefill.empty());
      for (size_t i = 0; i < plan.prefill.size(); ++i) {
        REQUIRE(plan.prefill[i].key == prompts[i].key);
        REQUIRE(plan.prefill[i].tokens <= prompts[i].tokens);
        prompts[i].tokens -= plan.prefill[i].tokens;
        tokens += plan.prefill[i].tokens;
      }
      REQUIRE(tokens == plan.tokens);
      REQUIRE(tokens <= b.tokens_max);
      std::erase_if(prompts, [](const WaitingPrompt& p) { return p.tokens == 0; });
    }
  }
}

}  // namespace baton
