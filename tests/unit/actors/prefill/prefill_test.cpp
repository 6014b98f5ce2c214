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

TEST_CASE("a prompt is computed, its first token streamed, its blocks handed over and held") {
  PrefillBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  bench.run(bench.make_run(ids, 1), life(9));
  bench.step();

  const auto tokens = bench.context.expect<Tokens>(kGateway).message;
  REQUIRE(tokens.entries.size() == 1);
  const TokenEntry& first = tokens.entries[0];
  CHECK(first.id == next_token(ids, 0, kVocabulary));
  CHECK(first.request.value == 9);
  CHECK(first.epoch.value == 1);
  CHECK(first.seq == 0);
  CHECK(first.finish == Finish::none);

  const auto done = bench.context.expect<PrefillDone>();
  CHECK(done.envelope.request.value == 9);
  CHECK(done.message.finish == Finish::none);
  CHECK(done.message.usage.prompt_tokens == 40);
  CHECK(done.message.usage.prefill_rank == 1);
  CHECK(done.message.usage.kv_bytes == 3 * bench.engine.geometry().block_bytes());

  const auto post = bench.context.expect<KvPost>(kTarget).message;
  REQUIRE(post.pieces.size() == 2);
  CHECK(post.pieces[0].tag == 100);
  CHECK(post.pieces[1].tag == 101);
  CHECK(post.pieces[0].blocks == std::vector<BlockId>{{1000}, {1001}});
  CHECK(post.pieces[1].blocks == std::vector<BlockId>{{1002}});
  CHECK(post.pieces[0].digest == bench.mover.digest_of({{0}, {1}}));
  CHECK(bench.network.sends.size() == 2);

  const auto adopt = bench.context.expect<Adopt>(kTarget).message;
  CHECK(adopt.pieces == 2);
  CHECK(adopt.prompt == ids);
  CHECK(adopt.committed == std::vector<std::vector<TokenId>>{{}});
  REQUIRE(adopt.first.size() == 1);
  CHECK(adopt.first[0].id == first.id);
  CHECK(adopt.gateway == kGateway);

  CHECK(bench.actor->blocks_free() == 13);
  bench.hear(kTarget, Adopted{{1}, {}}, life(9));
  CHECK(bench.actor->blocks_free() == 13);  // the pieces are still being read
  bench.sent(1, 0);
  bench.sent(1, 1);
  CHECK(bench.actor->blocks_free() == 16);
  CHECK(bench.actor->jobs() == 0);
}

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
  CHECK(!bench.engine.batch->rows[0].sample);
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
    CHECK(bench.engine.batch->rows[0].sample == (steps == 4));
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

TEST_CASE("T60: several choices are refused aloud, not left hanging") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(10), 1);
  run.committed = {{}, {}};
  bench.run(run, life(1));
  const PrefillFailed failed = bench.context.expect<PrefillFailed>().message;
  CHECK(failed.refusal.code == ErrorCode::unsupported);
  CHECK(!failed.retryable);
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

TEST_CASE("T77: with its pool lent out, a prompt waits, and runs when a hold ends") {
  ScriptedEngine::Shape shape;
  shape.blocks = 4;
  PrefillBench bench(shape);
  bench.run(bench.make_run(some_prompt(48), 1), life(1));
  bench.run(bench.make_run(some_prompt(48), 2), life(2));
  bench.step();
  CHECK(!bench.engine.busy());  // three of four blocks are held for the transfer
  take_over(bench, 1, 2, life(1));
  REQUIRE(bench.engine.busy());
  bench.step();
  take_over(bench, 2, 2, life(2));
  CHECK(bench.actor->blocks_free() == 4);
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

TEST_CASE(
    "T3, T12, T13: a request can be cancelled in every state, and the next one is unaffected") {
  PrefillBench bench(small_steps());
  const Routing routing = life(1);
  const auto cancel = [&] {
    bench.hear(kScheduler, Cancel{}, routing);
    const auto answer = bench.context.expect<Cancelled>();
    CHECK(answer.envelope.request.value == 1);
    return answer.message.pending_pieces;
  };
  SUBCASE("before it arrives") {
    cancel();
    bench.run(bench.make_run(some_prompt(10), 1), routing);
    CHECK(bench.context.expect<RunRefused>().message.refusal.code == ErrorCode::cancelled);
  }
  SUBCASE("while it waits behind another") {
    bench.run(bench.make_run(some_prompt(30), 7), life(7));
    bench.run(bench.make_run(some_prompt(30), 1), routing);
    cancel();
    CHECK(bench.actor->jobs() == 1);
    bench.step();
    bench.context.expect<PrefillDone>();
    take_over(bench, 7, 1, life(7));
  }
  SUBCASE("while its step runs") {
    bench.run(bench.make_run(some_prompt(20), 1), routing);
    cancel();
    CHECK(bench.actor->blocks_free() == 14);  // the engine may still write them
    bench.step();
    CHECK(bench.context.count<Tokens>() == 0);
  }
  SUBCASE("between two chunks of it") {
    bench.run(bench.make_run(some_prompt(70), 1), routing);
    bench.step();
    cancel();
    bench.step();
    CHECK(!bench.engine.busy());
  }
  SUBCASE("while its pieces are under way") {
    bench.run(bench.make_run(some_prompt(20), 1), routing);
    bench.step();
    CHECK(cancel() == 1);
    CHECK(bench.mover.cancelled == std::vector<TransferId>{{1}});
    CHECK(bench.actor->blocks_free() == 14);  // T6: not before the mover lets go
    bench.sent(1, 0, false);
  }
  SUBCASE("when it is gone") {
    bench.run(bench.make_run(some_prompt(20), 1), routing);
    bench.step();
    take_over(bench, 1, 1, routing);
    CHECK(cancel() == 0);
  }
  SUBCASE("twice") {
    bench.run(bench.make_run(some_prompt(20), 1), routing);
    cancel();
    cancel();
    bench.step();
  }
  CHECK(bench.actor->blocks_free() == 16);
  CHECK(bench.actor->jobs() == 0);
  bench.context.forget_sent();
  bench.run(bench.make_run(some_prompt(10), 50), life(50));
  bench.step();
  bench.context.expect<PrefillDone>();
}

TEST_CASE("a cancel of an old epoch leaves the new life alone") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(20), 1), life(1, 3));
  bench.hear(kScheduler, Cancel{}, life(1, 2));
  bench.step();
  bench.context.expect<PrefillDone>();
  bench.run(bench.make_run(some_prompt(20), 2), life(1, 2));
  CHECK(bench.context.expect<RunRefused>().message.refusal.code == ErrorCode::cancelled);
}

TEST_CASE("T2, T5: a hold ends at once when the decode side says no") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(40), 1), life(1));
  bench.step();
  SUBCASE("AdoptFailed") {
    bench.hear(kTarget, AdoptFailed{{1}, {}}, life(1));
  }
  SUBCASE("KvNack") {
    bench.hear(kTarget, KvNack{{1}, 0, {}}, life(1));
  }
  CHECK(bench.mover.cancelled == std::vector<TransferId>{{1}});
  CHECK(bench.actor->blocks_free() == 13);
  bench.sent(1, 0);
  CHECK(bench.actor->blocks_free() == 13);  // T7: all handles, not one
  bench.sent(1, 1, false);
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE(
    "T24: words of another life of the decode actor, or about another epoch, change nothing") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  bench.step();
  ActorId other = kTarget;
  ++other.incarnation;
  bench.hear(other, Adopted{{1}, {}}, life(1));
  bench.hear(kTarget, Adopted{{1}, {}}, life(1, 2));
  bench.hear(kTarget, KvDone{{99}, 0}, life(1));
  bench.sent(1, 0);
  CHECK(bench.actor->blocks_free() == 14);
  CHECK(bench.actor->counters().stale == 3);
  bench.hear(kTarget, Adopted{{1}, {}}, life(1));
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE(
    "T20: the death of a decode rank ends its holds, T6 in quarantine until the mover is done") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  bench.step();
  Run other = bench.make_run(some_prompt(20), 2);
  other.target = {3, kDecodeSlot, 1};
  bench.run(other, life(2));
  bench.hear(kScheduler, PeerDown{2, 1});
  CHECK(bench.mover.downs == std::vector<uint32_t>{2});
  CHECK(bench.context.expect<PrefillFailed>().message.transfer.value == 1);
  CHECK(bench.actor->jobs() == 2);
  bench.context.advance(*bench.actor, 0);
  CHECK(bench.context.expect<Beat>().message.blocks_quarantined == 2);
  bench.sent(1, 0, false);
  CHECK(bench.actor->jobs() == 1);
  bench.step();
  CHECK(bench.context.expect<KvPost>().message.transfer.value == 1);
  CHECK(bench.context.expect<KvPost>().message.transfer.value == 2);
  // What was asked before the death was known, and comes after, is not begun.
  bench.run(bench.make_run(some_prompt(20), 3), life(3));
  CHECK(bench.context.expect<RunRefused>().message.refusal.code == ErrorCode::unavailable);
}

TEST_CASE("T25, T26: a piece that cannot be sent is said to both sides") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(40), 1), life(1));
  bench.step();
  bench.sent(1, 1, false);
  CHECK(bench.context.expect<KvNack>(kTarget).message.piece == 1);
  const PrefillFailed failed = bench.context.expect<PrefillFailed>().message;
  CHECK(failed.retryable);
  CHECK(failed.refusal.text.find("broken") != std::string::npos);
  bench.sent(1, 0, false);
  CHECK(bench.actor->blocks_free() == 16);
  CHECK(bench.context.count<KvNack>() == 0);
}

TEST_CASE("T26: a transfer that cannot be begun is a failure, a full mover only a delay") {
  PrefillBench bench;
  bench.mover.refuse_next = 1;
  SUBCASE("cannot be begun") {
    bench.mover.refuse_code = ErrorCode::unavailable;
    bench.run(bench.make_run(some_prompt(20), 1), life(1));
    bench.step();
    CHECK(bench.context.expect<PrefillFailed>().message.retryable);
    CHECK(bench.context.count<KvPost>() == 0);
    CHECK(bench.actor->blocks_free() == 16);
  }
  SUBCASE("full") {
    bench.mover.refuse_next = 2;
    bench.run(bench.make_run(some_prompt(20), 1), life(1));
    bench.step();
    CHECK(bench.context.count<KvPost>() == 0);
    CHECK(bench.context.count<Tokens>() == 1);  // the client does not wait for it
    bench.run(bench.make_run(some_prompt(20), 2), life(2));
    CHECK(bench.context.count<KvPost>() == 1);
    CHECK(bench.context.count<PrefillDone>() == 1);
  }
}

TEST_CASE("T46: a transfer of nothing still ends with a word from the decode side") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(32), 1);
  run.from_token = 32;
  run.target_blocks.clear();
  bench.run(run, life(1));
  bench.step();
  CHECK(bench.context.expect<KvPost>().message.pieces.empty());
  CHECK(bench.context.expect<Adopt>().message.pieces == 0);
  CHECK(bench.actor->blocks_free() == 14);
  bench.hear(kTarget, Adopted{{1}, {}}, life(1));
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE("T47: what the target already has is not sent, and both count the same pieces") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(80), 1);
  run.from_token = 32;
  run.target_blocks.resize(3);
  bench.run(run, life(1));
  bench.step();
  const KvPost post = bench.context.expect<KvPost>().message;
  REQUIRE(post.pieces.size() == 2);
  CHECK(post.pieces[0].digest == bench.mover.digest_of({{2}, {3}}));
  CHECK(bench.context.expect<Adopt>().message.pieces == 2);
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

TEST_CASE("T1, T11: a hold whose Adopted was lost ends by time, without any other event") {
  Limits limits;
  PrefillBench bench({}, limits);
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  bench.step();
  SUBCASE("all was sent") {
    bench.sent(1, 0);
    bench.context.advance(*bench.actor, limits.stage_us + kSecond);
    CHECK(bench.context.count<PrefillFailed>() == 0);
    CHECK(bench.actor->blocks_free() == 16);
  }
  SUBCASE("a piece is stuck") {
    bench.context.advance(*bench.actor, limits.stage_us + kSecond);
    CHECK(bench.context.expect<PrefillFailed>().message.refusal.code ==
          ErrorCode::deadline_exceeded);
    CHECK(bench.mover.cancelled.size() == 1);
    CHECK(bench.actor->blocks_free() == 14);
    bench.sent(1, 0, false);
    CHECK(bench.actor->blocks_free() == 16);
  }
  bench.hear(kTarget, Adopted{{1}, {}}, life(1));  // late: ignored
  CHECK(bench.actor->jobs() == 0);
}

TEST_CASE("the first token is sent again when the gateway asks while it is held") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(20), 1), life(1));
  bench.step();
  const Tokens first = bench.context.expect<Tokens>().message;
  bench.hear(kGateway, Resend{0, 0}, life(1));
  CHECK(bench.context.expect<Tokens>(kGateway).message.entries[0].id == first.entries[0].id);
  bench.hear(kGateway, Resend{0, 1}, life(1));
  bench.hear(kGateway, Resend{0, 0}, life(1, 2));
  CHECK(bench.context.count<Tokens>() == 0);
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

TEST_CASE("S10: a life that ends with work under way leaves its blocks to the next one's care") {
  PrefillBench bench;
  bench.run(bench.make_run(some_prompt(40), 1), life(1));
  bench.step();
  bench.actor.reset();
  CHECK(bench.mover.cancelled == std::vector<TransferId>{{1}});
  PrefillOptions options;
  options.engine = &bench.engine;
  options.mover = &bench.mover;
  Prefill next(options);
  FakeContext context({1, kPrefillSlot, 2});
  next.start(context);
  CHECK(next.blocks_free() == 13);
  bench.network.sends.clear();
  context.deliver(next, kScheduler, Welcome{1});
  context.advance(next, kSecond);
  CHECK(next.blocks_free() == 16);
}

}  // namespace baton::test
