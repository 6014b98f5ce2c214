#include "actors/prefill/prefill.h"

#include "tests/unit/actors/worker/benches.h"

namespace baton::test {
namespace {

constexpr uint32_t kVocabulary = 1000;

ScriptedEngine::Shape small_steps() {
  ScriptedEngine::Shape shape;
  shape.step_tokens_max = 32;
  return shape;
}

// Runs the engine until nothing is left to compute.
void run_out(PrefillBench& bench) {
  for (int steps = 0; bench.engine.busy(); ++steps) {
    REQUIRE(steps < 1000);
    bench.step();
  }
}

// Ends a hand-off as the decode side and the mover would.
void take_over(PrefillBench& bench, uint64_t transfer, uint32_t pieces, const Routing& routing) {
  for (uint32_t piece = 0; piece < pieces; ++piece) bench.sent(transfer, piece);
  bench.hear(kTarget, Adopted{{transfer}, {}}, routing);
}

}  // namespace

TEST_CASE("T56: a request that ends with its first token has no transfer") {
  PrefillBench bench;
  const std::vector<TokenId> ids = some_prompt(10);
  SUBCASE("by max_tokens") {
    Run run = bench.make_run(ids, 1, 1);
    run.target_blocks.clear();
    bench.run(run, life(1));
    bench.step();
    CHECK(bench.context.expect<Tokens>().message.entries[0].finish == Finish::length);
    CHECK(bench.context.expect<PrefillDone>().message.finish == Finish::length);
  }
  SUBCASE("by a stop id") {
    Run run = bench.make_run(ids, 1, 100);
    run.stops.stop_ids = {next_token(ids, 0, kVocabulary)};
    bench.run(run, life(1));
    bench.step();
    const TokenEntry entry = bench.context.expect<Tokens>().message.entries[0];
    CHECK(entry.finish == Finish::stop);
    CHECK(entry.has_token);
    CHECK(bench.context.expect<PrefillDone>().message.finish == Finish::stop);
  }
  CHECK(bench.context.count<KvPost>() == 0);
  CHECK(bench.context.count<Adopt>() == 0);
  CHECK(bench.actor->jobs() == 0);
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE("T86: max_tokens 0 scores the prompt and samples nothing") {
  PrefillBench bench;
  const std::vector<TokenId> ids = some_prompt(20);
  Run run = bench.make_run(ids, 1, 0);
  run.sampling.prompt_logprobs = 1;
  run.target_blocks.clear();
  bench.run(run, life(1));
  REQUIRE(bench.engine.busy());
  CHECK(bench.engine.batch->rows[0].samples.empty());
  bench.step();
  const PromptScores scores = bench.context.expect<PromptScores>(kGateway).message;
  REQUIRE(scores.logprobs.size() == 19);
  CHECK(scores.top.size() == 19);
  for (size_t i = 0; i < 19; ++i) CHECK(scores.logprobs[i] == token_logprob(ids[i], ids[i + 1]));
  const TokenEntry end = bench.context.expect<Tokens>().message.entries[0];
  CHECK(!end.has_token);
  CHECK(end.finish == Finish::length);
  const PrefillDone done = bench.context.expect<PrefillDone>().message;
  CHECK(done.finish == Finish::length);
  CHECK(done.usage.completion_tokens == 0);
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE("T68: a prompt longer than a step runs in chunks, with the same token") {
  PrefillBench bench(small_steps());
  const std::vector<TokenId> ids = some_prompt(150);
  bench.run(bench.make_run(ids, 1), life(1));
  int steps = 0;
  while (bench.engine.busy()) {
    CHECK(bench.engine.batch->rows[0].samples.size() == (steps == 4 ? 1 : 0));
    bench.step();
    ++steps;
  }
  CHECK(steps == 5);
  CHECK(bench.context.expect<Tokens>().message.entries[0].id == next_token(ids, 0, kVocabulary));
}

TEST_CASE("T52, S6: the prompt log-probabilities of a chunked prompt are whole and in place") {
  PrefillBench bench(small_steps());
  const std::vector<TokenId> ids = some_prompt(100);
  Run run = bench.make_run(ids, 1);
  run.sampling.prompt_logprobs = 1;
  bench.run(run, life(1));
  run_out(bench);
  const PromptScores scores = bench.context.expect<PromptScores>().message;
  REQUIRE(scores.logprobs.size() == 99);
  REQUIRE(scores.top.size() == 99);
  for (size_t i = 0; i < 99; ++i) CHECK(scores.logprobs[i] == token_logprob(ids[i], ids[i + 1]));
  const Adopt adopt = bench.context.expect<Adopt>().message;  // takes them along
  CHECK(adopt.prompt_logprobs == scores.logprobs);
  CHECK(adopt.prompt_top.size() == 99);
}

TEST_CASE("T64, T65: a retry replays what the client has, and goes on from there") {
  PrefillBench bench;
  const std::vector<TokenId> ids = some_prompt(20);
  const std::vector<TokenId> committed = {5, 6, 7};
  Run run = bench.make_run(ids, 1, 8);
  run.committed = {committed};
  run.sampling.presence_penalty = 1;
  run.sampling.prompt_logprobs = 0;
  bench.target_blocks(run);
  bench.run(run, life(1, 2));
  REQUIRE(bench.engine.busy());
  const BatchRow row = bench.engine.batch->rows[0];
  std::vector<TokenId> all = ids;
  all.insert(all.end(), committed.begin(), committed.end());
  CHECK(row.tokens == all);
  CHECK(row.history == all);
  CHECK(row.prompt_tokens == 20);
  bench.step();
  CHECK(bench.context.expect<PromptScores>().message.logprobs.size() == 19);
  const TokenEntry entry = bench.context.expect<Tokens>().message.entries[0];
  CHECK(entry.seq == 3);
  CHECK(entry.epoch.value == 2);
  CHECK(entry.id == next_token(all, 0, kVocabulary));
  const Adopt adopt = bench.context.expect<Adopt>().message;
  CHECK(adopt.committed[0] == committed);
  CHECK(adopt.prompt == ids);
}

TEST_CASE("T65: committed tokens count towards max_tokens and min_tokens") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(20), 1, 4);
  run.committed = {{5, 6, 7}};
  run.target_blocks.clear();
  bench.run(run, life(1, 2));
  bench.step();
  CHECK(bench.context.expect<Tokens>().message.entries[0].finish == Finish::length);
  CHECK(bench.context.expect<PrefillDone>().message.usage.completion_tokens == 4);
}

TEST_CASE("history travels with a row only while penalties need it") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  CHECK(bench.engine.batch->rows[0].history.empty());
}

TEST_CASE("T67, S3: a prompt that exceeds the context is refused with both numbers") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(257), 1), life(1));
  const PrefillFailed failed = bench.context.expect<PrefillFailed>().message;
  CHECK(!failed.retryable);
  CHECK(failed.refusal.code == ErrorCode::context_too_long);
  CHECK(failed.refusal.text.find("257") != std::string::npos);
  CHECK(failed.refusal.text.find("256") != std::string::npos);
  CHECK(!bench.engine.busy());
  bench.run(bench.make_run(some_prompt(256), 2), life(2));
  run_out(bench);
  CHECK(bench.context.expect<Tokens>().message.entries[0].finish == Finish::length);
}

TEST_CASE("T83, T84: an empty prompt and a foreign token id are the request's own fault") {
  PrefillBench bench;
  bench.run(bench.make_run({}, 1), life(1));
  CHECK(!bench.context.expect<PrefillFailed>().message.retryable);
  bench.run(bench.make_run({1, 1000}, 2), life(2));
  CHECK(bench.context.expect<PrefillFailed>().message.refusal.code == ErrorCode::invalid_argument);
  bench.run(bench.make_run({1, -1}, 3), life(3));
  CHECK(bench.context.expect<PrefillFailed>().message.refusal.code == ErrorCode::invalid_argument);
  CHECK(bench.actor->jobs() == 0);
}

TEST_CASE("what the scheduler says of choices has to fit together") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(10), 1);
  run.committed = {{}, {}};
  bench.run(run, life(1));
  CHECK(bench.context.expect<PrefillFailed>().message.refusal.code == ErrorCode::internal);
  run.committed = {};
  run.choices = {};
  bench.run(run, life(1));
  CHECK(bench.context.expect<PrefillFailed>().message.refusal.code == ErrorCode::internal);
}

TEST_CASE("T59, T60: every choice's first token is sampled once, from one prefill") {
  PrefillBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  Run run = bench.make_run(ids, 1);
  run.choices = {0, 2, 3};
  run.committed = {{}, {}, {}};
  bench.run(run, life(1));
  REQUIRE(bench.engine.batch->rows.size() == 1);
  CHECK(bench.engine.batch->rows[0].samples == std::vector<uint32_t>{0, 2, 3});
  bench.step();
  const Tokens tokens = bench.context.expect<Tokens>(kGateway).message;
  REQUIRE(tokens.entries.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    const TokenEntry& entry = tokens.entries[i];
    CHECK(entry.choice == run.choices[i]);
    CHECK(entry.seq == 0);
    CHECK(entry.id == next_token(ids, entry.choice, 1000));
    CHECK(!entry.kept);
  }
  const Adopt adopt = bench.context.expect<Adopt>(kTarget).message;
  REQUIRE(adopt.first.size() == 3);
  CHECK(adopt.committed.size() == 3);
  CHECK(adopt.first[2].choice == 3);
  CHECK(adopt.first[2].id == tokens.entries[2].id);
  CHECK(adopt.usage.completion_tokens == 3);
}

TEST_CASE("T59, T64: choices that have tokens are not sampled again, only handed over") {
  PrefillBench bench;
  const std::vector<TokenId> ids = some_prompt(20);
  Run run = bench.make_run(ids, 1, 30);
  run.choices = {0, 1, 4};
  run.committed = {{5, 6, 7}, {}, {8}};
  bench.run(run, life(1, 2));
  CHECK(bench.engine.batch->rows[0].tokens == ids);
  CHECK(bench.engine.batch->rows[0].samples == std::vector<uint32_t>{1});
  bench.step();
  const Tokens tokens = bench.context.expect<Tokens>(kGateway).message;
  REQUIRE(tokens.entries.size() == 1);
  CHECK(tokens.entries[0].choice == 1);
  const Adopt adopt = bench.context.expect<Adopt>(kTarget).message;
  REQUIRE(adopt.first.size() == 3);
  CHECK(adopt.first[0].seq == 3);
  CHECK(!adopt.first[0].has_token);
  CHECK(adopt.first[1].has_token);
  CHECK(adopt.first[2].seq == 1);
  CHECK(adopt.first[2].finish == Finish::none);
  CHECK(adopt.committed[0] == std::vector<TokenId>{5, 6, 7});
  bench.hear(kGateway, Resend{1, 0}, life(1, 2));
  CHECK(bench.context.expect<Tokens>().message.entries.size() == 1);
  bench.hear(kGateway, Resend{0, 3}, life(1, 2));  // not here: decode samples it
  CHECK(bench.context.count<Tokens>() == 0);
}

TEST_CASE("T56, T60: there is a transfer while one choice goes on, and none when all have ended") {
  const std::vector<TokenId> ids = some_prompt(20);
  for (const bool all : {false, true}) {
    CAPTURE(all);
    PrefillBench bench;
    Run run = bench.make_run(ids, 1);
    run.choices = {0, 1};
    run.committed = {{}, {}};
    run.stops.stop_ids = {next_token(ids, 0, 1000)};
    if (all) run.stops.stop_ids.push_back(next_token(ids, 1, 1000));
    bench.run(run, life(1));
    bench.step();
    const Tokens tokens = bench.context.expect<Tokens>(kGateway).message;
    CHECK(tokens.entries[0].finish == Finish::stop);
    CHECK(tokens.entries[1].finish == (all ? Finish::stop : Finish::none));
    CHECK(bench.context.count<Adopt>() == (all ? 0 : 1));
    const PrefillDone done = bench.context.expect<PrefillDone>().message;
    CHECK(done.finish == (all ? Finish::stop : Finish::none));
    CHECK(bench.actor->jobs() == (all ? 0 : 1));
  }
}

TEST_CASE("T86: with max_tokens 0 every choice ends without a token") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(20), 1, 0);
  run.choices = {0, 1};
  run.committed = {{}, {}};
  run.sampling.prompt_logprobs = 0;
  bench.run(run, life(1));
  CHECK(bench.engine.batch->rows[0].samples.empty());
  bench.step();
  CHECK(bench.context.count<PromptScores>() == 1);
  const Tokens tokens = bench.context.expect<Tokens>().message;
  REQUIRE(tokens.entries.size() == 2);
  for (const TokenEntry& entry : tokens.entries) {
    CHECK(!entry.has_token);
    CHECK(entry.finish == Finish::length);
  }
  CHECK(bench.context.expect<PrefillDone>().message.finish == Finish::length);
}

TEST_CASE("a target that names another number of blocks is not believed") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(40), 1);
  run.target_blocks.pop_back();
  bench.run(run, life(1));
  CHECK(bench.context.expect<PrefillFailed>().message.refusal.code == ErrorCode::internal);
}

TEST_CASE("prompts of one class share a step, S2 within the limit of prompts") {
  Limits limits;
  limits.prompts_per_pack_max = 3;
  PrefillBench bench({}, limits);
  bench.run(bench.make_run(some_prompt(10), 1), life(1));  // an idle engine runs it at once
  for (uint64_t i = 2; i <= 6; ++i) bench.run(bench.make_run(some_prompt(10 + i), i), life(i));
  CHECK(bench.engine.batch->rows.size() == 1);
  bench.step();
  CHECK(bench.engine.batch->rows.size() == 3);
  bench.step();
  CHECK(bench.engine.batch->rows.size() == 2);
  bench.step();
  CHECK(!bench.engine.busy());
  CHECK(bench.context.count<PrefillDone>() == 6);
}

TEST_CASE("a full queue is said to be busy, with a time to come back") {
  PrefillBench bench;
  Limits limits;
  PrefillOptions options;
  options.engine = &bench.engine;
  options.mover = &bench.mover;
  options.queue_max = 2;
  Prefill actor(options);
  FakeContext context(kSource);
  actor.start(context);
  for (uint64_t i = 1; i <= 3; ++i) {
    context.deliver(actor, kScheduler, bench.make_run(some_prompt(10), i), life(i));
  }
  // The first runs and still counts until its step is over.
  const RunRefused refused = context.expect<RunRefused>().message;
  CHECK(refused.transfer.value == 3);
  CHECK(refused.refusal.code == ErrorCode::busy);
  CHECK(refused.refusal.retry_after_ms > 0);
}

TEST_CASE("numbers that are none fail the one request, and are not tried again") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(9), 9), life(9));
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  bench.run(bench.make_run(some_prompt(20, 3), 2), life(2));
  bench.step();
  bench.context.forget_sent();
  bench.engine.adjust = [](const BatchRow& row, RowResult& result) {
    result.numerical_error = row.key == 1;
  };
  bench.step();
  const PrefillFailed failed = bench.context.expect<PrefillFailed>().message;
  CHECK(failed.transfer.value == 1);
  CHECK(!failed.retryable);
  CHECK(failed.refusal.text.find("numerical_error") != std::string::npos);
  CHECK(bench.context.expect<PrefillDone>().message.transfer.value == 2);
}

TEST_CASE("T18, T28: a request whose time has run out is dropped when its turn comes") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  Routing routing = life(2);
  routing.remaining_us = 50 * kMillisecond;
  bench.run(bench.make_run(some_prompt(20), 2), routing);
  bench.context.advance(*bench.actor, 100 * kMillisecond);
  bench.step();
  CHECK(!bench.engine.busy());
  const PrefillFailed failed = bench.context.expect<PrefillFailed>().message;
  CHECK(failed.refusal.code == ErrorCode::deadline_exceeded);
  CHECK(!failed.retryable);
}

TEST_CASE("a drained instance takes nothing new, finishes what it has, and says so once") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  bench.hear(kScheduler, Drain{});
  bench.run(bench.make_run(some_prompt(20), 2), life(2));
  CHECK(bench.context.expect<RunRefused>().message.refusal.code == ErrorCode::unavailable);
  bench.step();
  CHECK(bench.context.count<Drained>() == 0);
  take_over(bench, 1, 1, life(1));
  CHECK(bench.context.count<Drained>() == 1);
  bench.context.advance(*bench.actor, kSecond);
  CHECK(bench.context.count<Drained>() == 1);
}

}  // namespace baton::test
