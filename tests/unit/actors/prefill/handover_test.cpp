#include "tests/unit/actors/worker/benches.h"

namespace baton::test {
namespace {

constexpr uint32_t kVocabulary = 1000;

ScriptedEngine::Shape small_steps() {
  ScriptedEngine::Shape shape;
  shape.step_tokens_max = 32;
  return shape;
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
  CHECK(bench.network.sends[0].piece.blocks == std::vector<BlockId>{{0}, {1}});
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
  CHECK(bench.mover.cancelled.empty());
  bench.sent(1, 0);
  bench.sent(1, 1);
  CHECK(bench.actor->blocks_free() == 16);
  CHECK(bench.actor->jobs() == 0);
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
  CHECK(post.pieces[0].blocks == std::vector<BlockId>{{1000}, {1001}});
  CHECK(post.pieces[0].part.first_block == 2);
  CHECK(bench.network.sends[0].piece.blocks == std::vector<BlockId>{{2}, {3}});
  CHECK(bench.context.expect<Adopt>().message.pieces == 2);
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
