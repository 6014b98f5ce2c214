// Hand-offs between real engines (design.md, sections 5 and 6): an instance of one shape computes
// prompts and their first tokens, their KV moves by a routed plan, and an instance of another shape
// goes on. Tokens, log-probabilities and logits are, bit for bit, those of one engine alone.

#include "tests/handoff/sides.h"
#include "tests/unit/model/oracle_models.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace baton::test {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSlow = true;  // few pairs: the others take the same paths
#else
constexpr bool kSlow = false;
#endif
constexpr uint32_t kNew = 5;
constexpr uint32_t kBlockSizes[] = {16, 32, 64};

RigOptions kind(const std::string& model, ActivationMode mode, KvDtype dtype) {
  RigOptions options = rig_options(model, mode, dtype);
  options.step_tokens_max = 600;
  return options;
}

// Heads and kv-heads: 8 of 8, 4 of 2, 6 of 3, 4 of 4 and 4 of 1; four layers.
std::vector<RigOptions> kinds() {
  std::vector<RigOptions> all = {
      kind("Q4_1 eight kv-heads", ActivationMode::int8, KvDtype::bf16),
      kind("F32 eight kv-heads", ActivationMode::f32, KvDtype::f32),
      kind("Q4_1", ActivationMode::int8, KvDtype::f16),
      kind("F32 three kv-heads", ActivationMode::f32, KvDtype::bf16),
      kind("F32 as many kv-heads as heads", ActivationMode::f32, KvDtype::f32),
      kind("F32 one kv-head", ActivationMode::int8, KvDtype::bf16),
      kind("F32 four layers", ActivationMode::f32, KvDtype::f32),
  };
  if (kSlow) all.resize(1);
  return all;
}

// One engine alone, one model, and all that hands over to each other.
struct Bench {
  explicit Bench(const RigOptions& options, std::vector<Sequence> all = handoff_sequences())
      : sequences(std::move(all)), sources(options), targets(options) {
    RigOptions alone = options;
    alone.kv_blocks = 128;
    expected = EngineRig(alone).run(sequences, kNew);
  }
  // The shapes of each side hand over to all of the other one.
  void check_all(const std::vector<SideShape>& from, const std::vector<SideShape>& to,
                 const Move& move) {
    for (const SideShape& source : from) {
      if (!sources.possible(source)) continue;
      const std::vector<Leg> legs = prefill(sources.at(source), sequences);
      for (const SideShape& target : to) {
        if (!targets.possible(target)) continue;
        CAPTURE(source.tensor_parallel);
        CAPTURE(source.pipeline_parallel);
        CAPTURE(source.block_tokens);
        CAPTURE(target.tensor_parallel);
        CAPTURE(target.pipeline_parallel);
        CAPTURE(target.block_tokens);
        const auto got = go_on_at(sources.at(source), legs, targets.at(target), move, kNew);
        CHECK(same_bits(got, expected));
      }
    }
  }

  std::vector<Sequence> sequences;
  Instances sources;
  Instances targets;
  std::vector<Trace> expected;
};

// Every second prompt is known to the target up to the middle.
uint32_t half(std::size_t sequence, uint32_t prompt, uint32_t block_tokens) {
  return sequence % 2 == 0 ? prompt / 2 / block_tokens * block_tokens : 0;
}

std::vector<SideShape> tensor_shapes(uint32_t block_tokens) {
  std::vector<SideShape> shapes;
  for (const uint32_t degree : {1u, 2u, 3u, 4u, 8u}) {
    if (kSlow && (degree == 2 || degree == 8)) continue;
    shapes.push_back({degree, 1, block_tokens});
  }
  return shapes;
}

}  // namespace

TEST_CASE("T36, T37, T38: every pair of tensor-parallel degrees goes on with the same bits") {
  for (const RigOptions& options : kinds()) {
    CAPTURE(options.model);
    Bench bench(options);
    bench.check_all(tensor_shapes(16), tensor_shapes(16), Move{});
  }
}

TEST_CASE("T44: every pair of block sizes, with other degrees and with the same ones") {
  for (const RigOptions& options : kinds()) {
    CAPTURE(options.model);
    Bench bench(options);
    std::vector<SideShape> from;
    std::vector<SideShape> to;
    for (const uint32_t size : kBlockSizes) {
      from.push_back({2, 1, size});
      to.push_back({2, 1, size});
      if (!kSlow) to.push_back({3, 1, size});
    }
    Move move;
    move.reused = half;
    bench.check_all(from, to, move);
  }
}

TEST_CASE("T41: stages on either side, in one and in several groups of layers") {
  for (const char* model : {"F32 four layers", "Q4_1"}) {
    CAPTURE(model);
    Bench bench(kind(model, ActivationMode::int8, KvDtype::bf16));
    std::vector<SideShape> from = {{1, 1, 16}, {1, 2, 16}, {1, 3, 32}, {2, 2, 16}, {3, 3, 64}};
    std::vector<SideShape> to = {{1, 1, 16}, {1, 2, 16}, {1, 3, 16}, {2, 2, 64}, {4, 1, 32}};
    if (kSlow) from = to = {{1, 2, 16}, {2, 1, 32}};
    for (const uint32_t groups : {1u, 3u}) {
      CAPTURE(groups);
      Move move;
      move.terms = {groups, 1, groups == 1};  // a block at a time
      bench.check_all(from, to, move);
    }
  }
}

TEST_CASE("T44, T46, T47: what the target has is not sent, whatever it has") {
  for (const RigOptions& options : kinds()) {
    CAPTURE(options.model);
    Bench bench(options);
    for (const uint32_t quarters : {1u, 3u, 4u}) {
      CAPTURE(quarters);
      Move move;
      move.reused = [quarters](std::size_t, uint32_t prompt, uint32_t block_tokens) {
        return prompt * quarters / 4 / block_tokens * block_tokens;
      };
      bench.check_all({{2, 1, 16}, {4, 1, 32}}, {{1, 1, 16}, {3, 1, 16}}, move);
    }
  }
}

TEST_CASE("the real model on 1, 2 and 3 ranks goes on at 1, 2 and 3 with the same bits") {
  const std::optional<std::string> model = real_model();
  if (!model) return;
  if (kSlow) {
    MESSAGE("many minutes under a sanitizer: the tiny models take the same paths");
    return;
  }
  std::vector<Sequence> sequences = handoff_sequences();
  sequences = {sequences[0], sequences[3], sequences[9]};
  sequences[0].prompt = made_up_prompt(7, 9, 49152);
  sequences[2].prompt = made_up_prompt(90, 9, 49152);
  Bench bench(kind(*model, ActivationMode::int8, KvDtype::bf16), sequences);
  Move move;
  move.reused = half;
  bench.check_all({{1, 1, 16}, {2, 1, 16}, {3, 1, 32}}, {{1, 1, 16}, {2, 1, 16}, {3, 1, 16}}, move);
}

TEST_CASE("T39, T41: heads or layers in each other's place are seen, though their digests agree") {
  struct Case {
    const char* model;
    SideShape source;
  };
  for (const Case& c : {Case{"Q4_1 eight kv-heads", {2, 1, 16}}, Case{"Q4_1", {1, 2, 16}}}) {
    CAPTURE(c.model);
    Bench bench(kind(c.model, ActivationMode::int8, KvDtype::bf16));
    EngineRig& source = bench.sources.at(c.source);
    Move move;
    move.source_ranks = source.engine().placement().ranks;
    std::reverse(move.source_ranks.begin(), move.source_ranks.end());
    const auto legs = prefill(source, bench.sequences);
    const SideShape whole{1, 1, 16};
    const auto wrong = go_on_at(source, legs, bench.targets.at(whole), move, kNew);
    for (std::size_t i = 0; i < wrong.size(); ++i) {
      CAPTURE(i);
      CHECK(wrong[i].logits.front() == bench.expected[i].logits.front());  // the source's own
      CHECK_FALSE(same_bits(wrong[i], bench.expected[i]));
    }
    const auto right = go_on_at(source, legs, bench.targets.at(whole), Move{}, kNew);
    CHECK(same_bits(right, bench.expected));
  }
}

}  // namespace baton::test
