// The prefix cache on the prefill side: what is computed, what is not, and that it never shows in
// the answer.

#include "tests/unit/actors/worker/benches.h"

#include <doctest/doctest.h>

namespace baton::test {
namespace {

constexpr PrefixHash kRoot{7, 7};

// A prefill actor whose requests are named, adopted at once, and looked at.
struct Bench : PrefillBench {
  using PrefillBench::PrefillBench;

  struct Outcome {
    TokenId token = 0;
    uint32_t position = 0;  // of the first row's first token
    size_t computed = 0;    // positions, over all steps
    Usage usage;
  };

  Run named(std::vector<TokenId> ids, PrefixHash root = kRoot) {
    Run run = make_run(std::move(ids), ++last_transfer_);
    run.prefix.root = root;
    run.prefix.weights_version = kFirstWeights;
    return run;
  }
  // From Run to Adopted; the blocks are home then.
  Outcome whole(const Run& run) {
    const Routing routing = life(run.transfer.value);
    PrefillBench::run(run, routing);
    Outcome outcome;
    REQUIRE(engine.busy());
    outcome.position = engine.batch->rows[0].position;
    while (engine.busy()) {
      for (const BatchRow& row : engine.batch->rows) outcome.computed += row.tokens.size();
      step();
    }
    outcome.token = context.expect<Tokens>().message.entries[0].id;
    outcome.usage = context.expect<PrefillDone>().message.usage;
    hear(kTarget, Adopted{run.transfer, {}}, routing);
    for (const KvPiece& piece : context.expect<KvPost>().message.pieces) {
      sent(run.transfer.value, piece.piece);
    }
    context.forget_sent();
    CHECK(actor->jobs() == 0);
    CHECK(actor->blocks_free() == engine.block_count());
    return outcome;
  }

 private:
  uint64_t last_transfer_ = 0;
};

TokenId answer_to(const std::vector<TokenId>& ids) {
  return next_token(ids, 0, 1000);
}

std::vector<TokenId> with_tail(std::vector<TokenId> ids, size_t common, uint32_t length) {
  ids.resize(common);
  while (ids.size() < length) ids.push_back(static_cast<TokenId>(900 + ids.size() % 50));
  return ids;
}

}  // namespace

TEST_CASE("a prompt that was computed before is computed from its last block on, with one answer") {
  Bench bench;
  const auto ids = some_prompt(40);
  const Bench::Outcome first = bench.whole(bench.named(ids));
  CHECK(first.computed == 40);
  CHECK(first.usage.cached_tokens == 0);
  CHECK(bench.actor->blocks_cached() == 2);
  const Bench::Outcome again = bench.whole(bench.named(ids));
  CHECK(again.position == 32);
  CHECK(again.computed == 8);
  CHECK(again.usage.cached_tokens == 32);
  CHECK(again.token == first.token);
  CHECK(again.token == answer_to(ids));
}

TEST_CASE("T50: a full hit still computes the last token, and the answer is right from token 0") {
  Bench bench;
  const auto ids = some_prompt(32);  // both of its blocks are cached
  bench.whole(bench.named(ids));
  CHECK(bench.actor->blocks_cached() == 2);
  const Bench::Outcome again = bench.whole(bench.named(ids));
  CHECK(again.position == 16);
  CHECK(again.computed == 16);
  CHECK(again.token == answer_to(ids));
}

TEST_CASE("a partial hit goes as far as the prompts agree, in whole blocks") {
  ScriptedEngine::Shape shape;
  shape.blocks = 64;
  Bench bench(shape);
  const auto ids = some_prompt(70);
  bench.whole(bench.named(ids));
  for (const uint32_t common : {0u, 15u, 16u, 31u, 47u, 48u, 69u}) {
    CAPTURE(common);
    const auto other = with_tail(ids, common, 60 + common % 7);
    const Bench::Outcome outcome = bench.whole(bench.named(other));
    CHECK(outcome.position >= common / 16 * 16);
    CHECK(outcome.token == answer_to(other));
  }
}

TEST_CASE("neither another tenant's root nor other weights find what was kept") {
  Bench bench;
  const auto ids = some_prompt(40);
  bench.whole(bench.named(ids));
  CHECK(bench.whole(bench.named(ids, {8, 8})).computed == 40);
  Run run = bench.named(ids);
  run.prefix.weights_version = 5;  // this request runs on version 1
  const uint32_t cached = bench.actor->blocks_cached();
  CHECK(bench.whole(run).computed == 40);
  CHECK(bench.actor->blocks_cached() == cached);  // nor is anything kept under it
  run = bench.named(ids, {});
  CHECK(bench.whole(run).computed == 40);
}

TEST_CASE("prompt log-probabilities bypass the look-up, and leave their blocks for others") {
  Bench bench;
  const auto ids = some_prompt(40);
  Run scored = bench.named(ids);
  scored.sampling.prompt_logprobs = 0;
  const Bench::Outcome first = bench.whole(scored);
  CHECK(first.computed == 40);
  scored = bench.named(ids);
  scored.sampling.prompt_logprobs = 0;
  bench.context.forget_sent();
  const Routing routing = life(scored.transfer.value);
  bench.run(scored, routing);
  CHECK(bench.engine.batch->rows[0].position == 0);
  bench.step();
  CHECK(bench.context.expect<PromptScores>().message.logprobs.size() == 39);
  bench.hear(kScheduler, Cancel{}, routing);
  for (uint32_t i = 0; i < 3; ++i) bench.sent(scored.transfer.value, i);
  bench.context.forget_sent();
  CHECK(bench.whole(bench.named(ids)).usage.cached_tokens == 32);
}

TEST_CASE("in chunks as in one piece: a cached beginning gives the same answer") {
  ScriptedEngine::Shape shape;
  shape.step_tokens_max = 20;
  Bench bench(shape);
  const auto ids = some_prompt(100);
  CHECK(bench.whole(bench.named(ids)).computed == 100);
  const Bench::Outcome again = bench.whole(bench.named(ids));
  CHECK(again.computed == 4);
  CHECK(again.token == answer_to(ids));
  const auto other = with_tail(ids, 50, 90);
  const Bench::Outcome partly = bench.whole(bench.named(other));
  CHECK(partly.computed == 42);
  CHECK(partly.token == answer_to(other));
}

TEST_CASE("a retry finds prompt and committed tokens that were computed here before") {
  Bench bench;
  const auto ids = some_prompt(30);
  Run run = bench.named(ids);
  run.committed = {expected_tokens(ids, 0, 10)};
  run.stops.max_tokens = 20;
  bench.target_blocks(run);
  bench.whole(run);
  Run next = bench.named(ids);
  next.committed = {expected_tokens(ids, 0, 14)};
  next.stops.max_tokens = 20;
  bench.target_blocks(next);
  const Bench::Outcome outcome = bench.whole(next);
  CHECK(outcome.position == 32);
  CHECK(outcome.usage.cached_tokens == 30);  // of the prompt
  CHECK(outcome.token == expected_tokens(ids, 0, 15).back());
}

TEST_CASE("when the pool is short, cached blocks make room for new prompts") {
  ScriptedEngine::Shape shape;
  shape.blocks = 5;
  Bench bench(shape);
  for (TokenId first = 1; first < 40; ++first) {
    const auto ids = some_prompt(64, first);
    CHECK(bench.whole(bench.named(ids)).token == answer_to(ids));
    CHECK(bench.actor->blocks_cached() <= 5);
  }
}

TEST_CASE("packs are filled by what is left to compute") {
  Bench bench;  // a step takes 128 tokens
  const auto a = some_prompt(100, 1);
  const auto b = some_prompt(100, 500);
  bench.whole(bench.named(a));
  bench.whole(bench.named(b));
  const Run busy = bench.named(some_prompt(3, 77));
  bench.run(busy, life(50));
  const Run again = bench.named(a);
  const Run beside = bench.named(b);
  bench.run(again, life(51));
  bench.run(beside, life(52));
  bench.step();
  REQUIRE(bench.engine.busy());
  CHECK(bench.engine.batch->rows.size() == 2);
  bench.context.forget_sent();
  bench.step();
  const Tokens one = bench.context.expect<Tokens>().message;
  const Tokens two = bench.context.expect<Tokens>().message;
  CHECK(one.entries[0].id == answer_to(a));
  CHECK(two.entries[0].id == answer_to(b));
}

TEST_CASE("two prompts that begin alike and run at once both answer right and share in the end") {
  ScriptedEngine::Shape shape;
  shape.blocks = 12;
  Bench bench(shape);
  const auto a = some_prompt(50);
  const auto b = with_tail(a, 33, 50);
  const Run busy = bench.named(some_prompt(3, 77));
  bench.run(busy, life(50));
  const Run first = bench.named(a);
  const Run second = bench.named(b);
  bench.run(first, life(51));
  bench.run(second, life(52));
  bench.step();
  REQUIRE(bench.engine.batch->rows.size() == 2);
  bench.context.forget_sent();
  bench.step();
  CHECK(bench.context.expect<Tokens>().message.entries[0].id == answer_to(a));
  CHECK(bench.context.expect<Tokens>().message.entries[0].id == answer_to(b));
  CHECK(bench.actor->blocks_cached() == 4);  // two in common, one more each
}

}  // namespace baton::test
