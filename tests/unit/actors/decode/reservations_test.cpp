#include "tests/unit/actors/worker/benches.h"

namespace baton::test {

TEST_CASE("a reservation holds a slot, blocks for the transfer and the next token, and receives") {
  DecodeBench bench;
  const Reserved reserved = bench.reserve(1, 32, life(1));
  CHECK(reserved.transfer.value == 1);
  CHECK(reserved.slots == std::vector<SlotLease>{{{0}, {1}}});
  CHECK(reserved.blocks == std::vector<BlockId>{{0}, {1}});
  CHECK(reserved.blocks_held == 3);  // position 32 is in the third
  CHECK(bench.actor->blocks_free() == 13);
  CHECK(bench.actor->slots_free() == 3);
  REQUIRE(bench.network.receives.count(100) == 1);
  const KvNetwork::Part& part = bench.network.receives.at(100);
  CHECK(part.transfer.peer == kSource);
  CHECK(part.piece.bytes == 2 * bench.engine.geometry().block_bytes());
}

TEST_CASE("T77, T79: a reservation takes all it needs or nothing") {
  ScriptedEngine::Shape shape;
  shape.blocks = 4;
  DecodeBench bench(shape);
  bench.reserve(1, 40, life(1));
  bench.hear(kScheduler, bench.make_reserve(2, 20), life(2));
  const auto refused = bench.context.expect<ReserveRefused>();
  CHECK(refused.envelope.request.value == 2);
  CHECK(refused.message.refusal.code == ErrorCode::busy);
  CHECK(refused.message.refusal.retry_after_ms > 0);
  CHECK(bench.actor->blocks_free() == 1);
  CHECK(bench.actor->slots_free() == 3);
  bench.mover.refuse_next = 1;
  bench.hear(kScheduler, bench.make_reserve(3, 10), life(3));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::busy);
  CHECK(bench.actor->blocks_free() == 1);
  CHECK(bench.actor->slots_free() == 3);
}

TEST_CASE("no slot is promised twice") {
  DecodeBench bench;
  for (uint64_t i = 1; i <= 4; ++i) bench.reserve(i, 10, life(i));
  bench.hear(kScheduler, bench.make_reserve(5, 10), life(5));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::busy);
}

TEST_CASE("T39: a plan that this instance was never connected by is refused, for now") {
  DecodeBench bench;
  Reserve reserve = bench.make_reserve(1, 10);
  ++reserve.plan.value;
  bench.hear(kScheduler, reserve, life(1));
  const Refusal refusal = bench.context.expect<ReserveRefused>().message.refusal;
  CHECK(refusal.code == ErrorCode::unavailable);
  CHECK(refusal.retry_after_ms > 0);
  CHECK(bench.actor->slots_free() == 4);
}

TEST_CASE("T60, T67: no choice, nothing at all, or too much is refused for good") {
  DecodeBench bench;
  Reserve none = bench.make_reserve(1, 10);
  none.n = 0;
  bench.hear(kScheduler, none, life(1));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::unsupported);
  bench.hear(kScheduler, bench.make_reserve(2, 0), life(1));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::invalid_argument);
  bench.hear(kScheduler, bench.make_reserve(3, 257), life(1));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::context_too_long);
  ScriptedEngine::Shape shape;
  shape.blocks = 2;
  DecodeBench small(shape);
  small.hear(kScheduler, small.make_reserve(4, 33), life(1));
  CHECK(small.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::unsupported);
}

TEST_CASE("the record and the pieces may come in any order") {
  for (int order = 0; order < 6; ++order) {
    CAPTURE(order);
    DecodeBench bench;
    const std::vector<TokenId> ids = some_prompt(40);
    const Routing routing = life(1);
    const Reserved reserved = bench.reserve(1, 40, routing);
    const KvPost post = bench.make_post(reserved, ids);
    REQUIRE(post.pieces.size() == 2);
    const Adopt adopt = bench.make_adopt(reserved, post, ids, routing);
    const auto do_post = [&] { bench.hear(kSource, post, routing); };
    const auto do_pieces = [&] {
      bench.arrive(post, 1);
      bench.arrive(post, 0);
    };
    const auto do_adopt = [&] { bench.hear(kSource, adopt, routing); };
    if (order == 0) do_post(), do_pieces(), do_adopt();
    if (order == 1) do_post(), do_adopt(), do_pieces();
    if (order == 2) do_pieces(), do_post(), do_adopt();
    if (order == 3) do_pieces(), do_adopt(), do_post();
    if (order == 4) do_adopt(), do_pieces(), do_post();
    if (order == 5) do_adopt(), do_post(), do_pieces();
    CHECK(bench.context.count<KvDone>(kSource) == 2);
    const Adopted adopted = bench.context.expect<Adopted>(kSource).message;
    CHECK(adopted.usage.decode_rank == 2);
    CHECK(bench.context.count<Adopted>() == 1);
    CHECK(bench.actor->running() == 1);
    CHECK(bench.actor->reservations() == 0);
    CHECK(bench.engine.busy());
  }
}

TEST_CASE("T59, T49: decoding continues from the handed-over blocks with the same tokens") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  bench.admit(1, 1, ids, 8);
  const std::vector<TokenId> expected = expected_tokens(ids, 0, 8);
  for (uint32_t seq = 1; seq < 8; ++seq) {
    bench.step();
    const Tokens tokens = bench.context.expect<Tokens>(kGateway).message;
    REQUIRE(tokens.entries.size() == 1);
    CHECK(tokens.entries[0].seq == seq);
    CHECK(tokens.entries[0].id == expected[seq]);
    CHECK(tokens.entries[0].finish == (seq == 7 ? Finish::length : Finish::none));
  }
  CHECK(bench.context.expect<SlotFreed>().message.finish == Finish::length);
  CHECK(!bench.engine.busy());
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE("promise 18: a flipped bit is caught before anything is decoded from it") {
  for (int order = 0; order < 2; ++order) {
    DecodeBench bench;
    const std::vector<TokenId> ids = some_prompt(40);
    const Routing routing = life(1);
    const Reserved reserved = bench.reserve(1, 40, routing);
    const KvPost post = bench.make_post(reserved, ids);
    bench.hear(kSource, bench.make_adopt(reserved, post, ids, routing), routing);
    if (order == 0) bench.hear(kSource, post, routing);
    bench.arrive(post, 0, true, 1);
    if (order == 1) bench.hear(kSource, post, routing);
    CHECK(bench.context.expect<KvNack>(kSource).message.refusal.code == ErrorCode::corrupt);
    CHECK(bench.context.expect<AdoptFailed>(kSource).message.refusal.code == ErrorCode::corrupt);
    CHECK(bench.context.expect<AdoptFailed>().message.refusal.code == ErrorCode::corrupt);
    CHECK(bench.context.count<Adopted>() == 0);
    CHECK(!bench.engine.busy());
    CHECK(bench.actor->blocks_free() == 13);  // the other piece's receive is still posted
    bench.withdraw();
    CHECK(bench.actor->blocks_free() == 16);
    CHECK(bench.network.drains.size() == 1);  // its bytes still come, and are thrown away
    CHECK(bench.context.expect<SlotFreed>().message.slots_free == 4);
  }
}

TEST_CASE("row 43: an announcement that does not fit the reservation is refused, never used") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  const Reserved reserved = bench.reserve(1, 40, life(1));
  KvPost post = bench.make_post(reserved, ids);
  SUBCASE("pieces") {
    post.pieces.pop_back();
  }
  SUBCASE("bytes") {
    post.pieces[0].bytes = 1;
  }
  SUBCASE("tag") {
    post.pieces[0].tag = 7;
  }
  SUBCASE("blocks") {
    post.pieces[0].blocks[0] = {15};
  }
  bench.hear(kSource, post, life(1));
  CHECK(bench.context.count<KvNack>(kSource) == 1);
  CHECK(bench.context.count<AdoptFailed>(kSource) == 1);
  CHECK(bench.context.count<AdoptFailed>() == 2);
  bench.withdraw();
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE("T24: another life of the prefill actor cannot speak for the reservation's source") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  const Reserved reserved = bench.reserve(1, 40, life(1));
  const KvPost post = bench.make_post(reserved, ids);
  ActorId other = kSource;
  ++other.incarnation;
  bench.hear(other, post, life(1));
  CHECK(bench.context.count<KvNack>(other) == 1);
  CHECK(bench.network.drains.empty());  // the tags belong to the true source
  bench.hear(other, bench.make_adopt(reserved, post, ids, life(1)), life(1));
  CHECK(bench.context.count<AdoptFailed>(other) == 1);
  bench.hear(kSource, post, life(1, 2));
  CHECK(bench.actor->counters().stale == 3);
  CHECK(bench.actor->reservations() == 1);
}

TEST_CASE("T96: blocks of other weights are not decoded from") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(10);
  const Reserved reserved = bench.reserve(1, 10, life(1));
  const KvPost post = bench.make_post(reserved, ids);
  Adopt adopt = bench.make_adopt(reserved, post, ids, life(1));
  adopt.weights_version = 3;
  bench.hear(kSource, adopt, life(1));
  CHECK(bench.context.expect<AdoptFailed>().message.refusal.code == ErrorCode::conflict);
}

TEST_CASE("T26: a piece that fails is said to both sides") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  const Reserved reserved = bench.reserve(1, 40, life(1));
  const KvPost post = bench.make_post(reserved, ids);
  bench.hear(kSource, post, life(1));
  SUBCASE("seen here") {
    bench.arrive(post, 0, false);
    CHECK(bench.context.expect<KvNack>(kSource).message.piece == 0);
  }
  SUBCASE("seen by the sender") {
    bench.hear(kSource, KvNack{{1}, 0, {ErrorCode::worker_lost, "no", 0}}, life(1));
  }
  CHECK(bench.context.count<AdoptFailed>(kSource) == 1);
  CHECK(bench.context.count<AdoptFailed>() == 2);
  bench.withdraw();
  CHECK(bench.actor->blocks_free() == 16);
  CHECK(bench.actor->slots_free() == 4);
}

TEST_CASE("T1, T2, T6, T9, T14: a reservation is given back in every state, after quarantine") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  const Routing routing = life(1);
  const Reserved reserved = bench.reserve(1, 40, routing);
  const KvPost post = bench.make_post(reserved, ids);
  size_t drains = 0;
  bool by_cancel = false;
  SUBCASE("nothing has come") {}
  SUBCASE("nothing has come, cancelled") {
    by_cancel = true;
  }
  SUBCASE("announced") {
    bench.hear(kSource, post, routing);
    drains = 2;
  }
  SUBCASE("announced and half arrived") {
    bench.hear(kSource, post, routing);
    bench.arrive(post, 1);
    drains = 1;
  }
  SUBCASE("half arrived, not announced, cancelled") {
    bench.arrive(post, 0);
    by_cancel = true;
  }
  SUBCASE("all arrived, the record is missing") {
    bench.hear(kSource, post, routing);
    bench.arrive_all(post);
  }
  if (by_cancel) {
    bench.hear(kScheduler, Cancel{}, routing);
    const uint32_t pending = bench.context.expect<Cancelled>().message.pending_pieces;
    CHECK(pending == bench.mover.received.size());
  } else {
    bench.hear(kScheduler, Release{{1}}, routing);
  }
  if (!bench.mover.received.empty()) {
    CHECK(bench.context.count<SlotFreed>() == 0);
    CHECK(bench.actor->blocks_free() == 13);
  }
  bench.withdraw();
  const SlotFreed freed = bench.context.expect<SlotFreed>().message;
  CHECK(freed.slot == reserved.slots[0]);
  CHECK(freed.blocks_free == 16);
  CHECK(bench.actor->slots_free() == 4);
  CHECK(bench.actor->reservations() == 0);
  CHECK(bench.network.drains.size() == drains);
  // Late words of the sender are answered, and change nothing.
  bench.context.forget_sent();
  bench.hear(kSource, bench.make_adopt(reserved, post, ids, routing), routing);
  CHECK(bench.context.count<AdoptFailed>(kSource) == 1);
  CHECK(bench.actor->running() == 0);
  bench.hear(kScheduler, Release{{1}}, routing);
  bench.hear(kScheduler, Cancel{}, routing);
  CHECK(bench.context.count<SlotFreed>() == 0);
}

TEST_CASE("only pieces whose receives were withdrawn are drained when the announcement is late") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(100);
  const Reserved reserved = bench.reserve(1, 100, life(1));
  const KvPost post = bench.make_post(reserved, ids);
  REQUIRE(post.pieces.size() == 4);
  bench.arrive(post, 2);  // overtook its announcement
  bench.hear(kScheduler, Release{{1}}, life(1));
  SUBCASE("late, but before the receives have ended") {
    bench.hear(kSource, post, life(1));
    bench.withdraw();
  }
  SUBCASE("later") {
    bench.withdraw();
    bench.hear(kSource, post, life(1));
  }
  CHECK(bench.context.count<KvNack>(kSource) == 1);
  CHECK(bench.network.drains == std::set<uint32_t>{100, 101, 103});
}

TEST_CASE("an announcement of something unknown is refused and drained, by lengths of our own") {
  DecodeBench bench;
  KvPost post;
  post.transfer = {77};
  post.pieces = {{0, 7700, {{3}, {4}}, 1, 5}};
  bench.hear(kSource, post, life(1));
  CHECK(bench.context.expect<KvNack>(kSource).message.refusal.code == ErrorCode::not_found);
  CHECK(bench.network.drains == std::set<uint32_t>{7700});
}

TEST_CASE("T3: a Reserve that its Cancel has overtaken is refused") {
  DecodeBench bench;
  bench.hear(kScheduler, Cancel{}, life(1, 2));
  bench.hear(kScheduler, bench.make_reserve(1, 10), life(1, 2));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::cancelled);
  bench.hear(kScheduler, bench.make_reserve(2, 10), life(1, 3));
  CHECK(bench.context.count<Reserved>() == 1);
}

TEST_CASE("promise 17: a Reserve of an older epoch never disturbs the life that runs") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10), 8, 3);
  bench.hear(kScheduler, bench.make_reserve(2, 10), life(1, 2));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::stale);
  CHECK(bench.actor->running() == 1);
  bench.hear(kScheduler, Cancel{}, life(1, 2));
  CHECK(bench.actor->running() == 1);
}

TEST_CASE("a newer life of a request ends what is left of the older one") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10), 8, 1);
  bench.reserve(2, 12, life(1, 2));
  CHECK(bench.actor->running() == 0);
  bench.step();
  CHECK(bench.context.expect<SlotFreed>().message.finish == Finish::cancelled);
  CHECK(bench.actor->slots_free() == 3);
}

TEST_CASE("T20, T13: the death of a prefill rank ends what it owes, and nothing else") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10));
  bench.reserve(2, 20, life(2));
  Reserve other = bench.make_reserve(3, 20);
  other.source = {5, kPrefillSlot, 1};
  bench.hear(kScheduler, other, life(3));
  bench.context.forget_sent();
  bench.hear(kScheduler, PeerDown{1, 1});
  CHECK(bench.mover.downs == std::vector<uint32_t>{1});
  CHECK(bench.context.expect<AdoptFailed>().message.transfer.value == 2);
  CHECK(bench.context.expect<AdoptFailed>(kSource).message.transfer.value == 2);
  CHECK(bench.context.count<AdoptFailed>() == 0);
  bench.withdraw();
  CHECK(bench.context.expect<SlotFreed>().envelope.request.value == 2);
  CHECK(bench.network.drains.empty());
  CHECK(bench.actor->running() == 1);
  CHECK(bench.actor->reservations() == 1);
  bench.hear(kScheduler, PeerDown{5, 0});  // an earlier life of that rank
  CHECK(bench.actor->reservations() == 1);
  // What was asked before the death was known, and comes after, is not begun.
  bench.hear(kScheduler, bench.make_reserve(4, 20), life(4));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::unavailable);
}

TEST_CASE("T1, T11: a reservation without progress ends by time once the scheduler is silent too") {
  DecodeBench bench;
  const Limits limits = DecodeBench::default_limits();
  bench.reserve(1, 20, life(1));
  for (int i = 0; i < 10; ++i) {  // a long queue in front of it: the scheduler minds it
    bench.context.advance(*bench.actor, limits.lease_us / 2);
    bench.hear(kScheduler, BeatAck{1});
  }
  CHECK(bench.actor->reservations() == 1);
  bench.context.forget_sent();
  bench.context.advance(*bench.actor, limits.lease_us + kSecond);
  CHECK(bench.context.expect<AdoptFailed>(kSource).message.refusal.code ==
        ErrorCode::deadline_exceeded);
  bench.withdraw();
  CHECK(bench.actor->slots_free() == 4);
  CHECK(bench.actor->blocks_free() == 16);
  CHECK(bench.actor->counters().leases_expired == 1);
}

TEST_CASE("said twice is done once") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(40);
  const Routing routing = life(1);
  const Reserved reserved = bench.reserve(1, 40, routing);
  bench.hear(kScheduler, bench.make_reserve(1, 40), routing);
  CHECK(bench.context.sent.empty());
  const KvPost post = bench.make_post(reserved, ids);
  const Adopt adopt = bench.make_adopt(reserved, post, ids, routing);
  for (int i = 0; i < 2; ++i) {
    bench.hear(kSource, post, routing);
    bench.hear(kSource, adopt, routing);
  }
  bench.arrive_all(post);
  CHECK(bench.context.count<KvDone>() == 2);
  bench.hear(kSource, post, routing);
  bench.hear(kSource, adopt, routing);
  bench.hear(kScheduler, bench.make_reserve(1, 40), routing);
  bench.context.deliver(*bench.actor, kTarget, KvReceived{{1}, 0, true, "", 0, 0});
  CHECK(bench.actor->running() == 1);
  CHECK(bench.context.count<Adopted>() == 2);  // scheduler and prefill
  CHECK(bench.context.count<AdoptFailed>() == 0);
  CHECK(bench.network.drains.empty());
}

TEST_CASE(
    "T54, T55: decode says the prompt's log-probabilities again, should prefill's copy be lost") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(20);
  const Routing routing = life(1);
  const Reserved reserved = bench.reserve(1, 20, routing);
  const KvPost post = bench.make_post(reserved, ids);
  bench.hear(kSource, post, routing);
  bench.arrive_all(post);
  Adopt adopt = bench.make_adopt(reserved, post, ids, routing);
  adopt.sampling.prompt_logprobs = 1;
  adopt.prompt_logprobs.assign(19, -1.5f);
  adopt.prompt_top.assign(19, {{7, -0.5f}});
  bench.hear(kSource, adopt, routing);
  const auto scores = bench.context.expect<PromptScores>(kGateway);
  CHECK(scores.message.logprobs == adopt.prompt_logprobs);
  REQUIRE(scores.message.top.size() == 19);
  CHECK(scores.message.top[0][0].id == 7);
}

TEST_CASE("S10: a life that ends keeps the next one off the blocks that are being received") {
  DecodeBench bench;
  bench.reserve(1, 40, life(1));
  bench.mover.receiver = false;  // its receives cannot be withdrawn
  bench.actor.reset();
  CHECK(bench.mover.cancelled == std::vector<TransferId>{{1}});
  bench.mover.receiver = true;
  Decode next(bench.options);
  FakeContext context({2, kDecodeSlot, 2});
  next.start(context);
  CHECK(next.blocks_free() == 13);
}

}  // namespace baton::test
