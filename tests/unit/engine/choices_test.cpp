#include <cstring>

#include "tests/unit/engine/engine_rig.h"

// Last: its CHECK replaces the one of runtime/base/check.h.
#include <doctest/doctest.h>

namespace baton {
namespace {

SamplingParams hot(uint64_t seed) {
  SamplingParams sampling;
  sampling.temperature = 1;
  sampling.seed = seed;
  sampling.top_logprobs = 2;
  return sampling;
}

bool same(const RowSample& sample, const Trace& trace, size_t at) {
  return sample.token == trace.tokens[at] &&
         std::memcmp(&sample.logprob, &trace.logprobs[at], sizeof(float)) == 0 &&
         sample.top.size() == trace.top[at].size() && sample.top[0].id == trace.top[at][0].id;
}

}  // namespace

TEST_CASE("T60: one prompt's choices go on from shared blocks and a copied tail, bit for bit") {
  constexpr uint32_t kChoices = 4;
  constexpr uint32_t kNew = 40;
  for (const uint32_t prompt_tokens : {1u, 16u, 21u, 48u, 77u}) {
    for (const int threads : {1, 2}) {
      CAPTURE(prompt_tokens);
      CAPTURE(threads);
      RigOptions options;
      options.threads = threads;
      EngineRig rig(options);
      Sequence alone;
      alone.prompt = made_up_prompt(prompt_tokens, 3);
      alone.sampling = hot(11);
      std::vector<Trace> expected;
      for (uint32_t c = 0; c < kChoices; ++c) {
        alone.choice = c;
        expected.push_back(rig.run_alone(alone, kNew));
      }

      EngineDriver& driver = rig.driver();
      driver.reset_blocks();
      const std::vector<BlockId> prompt_blocks = driver.take_blocks(prompt_tokens);
      BatchRow row;
      row.tokens = alone.prompt;
      row.blocks = prompt_blocks;
      row.samples = {0, 1, 2, 3};
      row.sampling = alone.sampling;
      const RowResult first = driver.step({row}).rows.at(0);
      REQUIRE(first.samples.size() == kChoices);
      std::vector<TokenId> last;
      for (uint32_t c = 0; c < kChoices; ++c) {
        CHECK(first.samples[c].choice == c);
        CHECK(same(first.samples[c], expected[c], 0));
        last.push_back(first.samples[c].token);
      }

      // The last choice goes on in the tail itself, the others in copies of it.
      std::vector<BlockCopy> copies;
      std::vector<std::vector<BlockId>> tables;
      for (uint32_t c = 0; c < kChoices; ++c) {
        std::vector<BlockId> table = prompt_blocks;
        const bool partial = prompt_tokens % 16 != 0;
        if (partial && c + 1 < kChoices) {
          table.back() = driver.take_blocks(1).front();
          copies.push_back({prompt_blocks.back(), table.back()});
        }
        for (const BlockId more : driver.take_blocks(kNew + 16)) table.push_back(more);
        tables.push_back(std::move(table));
      }
      for (uint32_t at = 1; at < kNew; ++at) {
        std::vector<BatchRow> rows;
        for (uint32_t c = 0; c < kChoices; ++c) {
          BatchRow& next = rows.emplace_back();
          next.key = c;
          next.tokens = {last[c]};
          next.position = prompt_tokens + at - 1;
          next.blocks = tables[c];
          next.samples = {c};
          next.sampling = alone.sampling;
        }
        const StepDone done = driver.step(std::move(rows), std::exchange(copies, {}));
        for (uint32_t c = 0; c < kChoices; ++c) {
          REQUIRE(same(done.rows[c].samples.at(0), expected[c], at));
          last[c] = done.rows[c].samples[0].token;
        }
      }
    }
  }
}

TEST_CASE("a choice that catches up in chunks of any size goes on with the same bits") {
  constexpr uint32_t kPrompt = 21;
  constexpr uint32_t kKnown = 30;
  EngineRig rig(RigOptions{});
  Sequence alone;
  alone.prompt = made_up_prompt(kPrompt, 5);
  alone.sampling = hot(4);
  alone.sampling.repetition_penalty = 1.2f;
  alone.choice = 2;
  const Trace expected = rig.run_alone(alone, kKnown + 1);
  std::vector<TokenId> tokens = alone.prompt;
  tokens.insert(tokens.end(), expected.tokens.begin(), expected.tokens.end() - 1);
  for (const uint32_t chunk : {1u, 7u, 16u, 64u}) {
    CAPTURE(chunk);
    EngineDriver& driver = rig.driver();
    driver.reset_blocks();
    const std::vector<BlockId> blocks = driver.take_blocks(tokens.size());
    RowResult result;
    for (uint32_t begin = 0; begin < tokens.size();) {
      const auto end = static_cast<uint32_t>(std::min<size_t>(begin + chunk, tokens.size()));
      BatchRow row;
      row.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
      row.position = begin;
      row.blocks = blocks;
      row.sampling = alone.sampling;
      row.prompt_tokens = kPrompt;
      row.samples.clear();
      if (end == tokens.size()) {
        row.samples = {2};
        row.history = tokens;
      }
      result = driver.step({row}).rows.at(0);
      begin = end;
    }
    CHECK(same(result.samples.at(0), expected, kKnown));
  }
}

}  // namespace baton
