#include "tests/unit/actors/worker/benches.h"

namespace baton::test {
namespace {

// Steps until nothing runs; returns the ids that were streamed for a request, in order.
std::vector<TokenId> stream_of(DecodeBench& bench, uint64_t request) {
  std::vector<TokenId> ids;
  for (int steps = 0; bench.engine.busy(); ++steps) {
    REQUIRE(steps < 1000);
    bench.step();
    while (auto tokens = bench.context.take<Tokens>()) {
      for (const TokenEntry& entry : tokens->message.entries) {
        if (entry.request.value == request && entry.has_token) ids.push_back(entry.id);
      }
    }
  }
  return ids;
}

}  // namespace

TEST_CASE("all running sequences share each step, and one message carries its tokens") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10));
  bench.admit(2, 2, some_prompt(20, 3));
  bench.admit(3, 3, some_prompt(30, 5));
  bench.step();  // the first one had begun alone
  bench.context.forget_sent();
  CHECK(bench.engine.batch->rows.size() == 3);
  bench.step();
  const Tokens tokens = bench.context.expect<Tokens>(kGateway).message;
  CHECK(tokens.entries.size() == 3);
  CHECK(bench.context.count<Tokens>() == 0);
}

TEST_CASE("each gateway gets its own message") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10));
  const std::vector<TokenId> ids = some_prompt(20);
  const Reserved reserved = bench.reserve(2, 20, life(2));
  const KvPost post = bench.make_post(reserved, ids);
  bench.hear(kSource, post, life(2));
  bench.arrive_all(post);
  Adopt adopt = bench.make_adopt(reserved, post, ids, life(2));
  const ActorId other{9, kGatewaySlot, 1};
  adopt.gateway = other;
  bench.hear(kSource, adopt, life(2));
  bench.step();
  bench.context.forget_sent();
  bench.step();
  CHECK(bench.context.expect<Tokens>(kGateway).message.entries.size() == 1);
  CHECK(bench.context.expect<Tokens>(other).message.entries.size() == 1);
}

TEST_CASE("T56, T65: a stop id ends a sequence, but not before min_tokens") {
  const std::vector<TokenId> ids = some_prompt(10);
  const std::vector<TokenId> expected = expected_tokens(ids, 0, 20);
  for (const uint32_t min_tokens : {0u, 4u, 6u}) {
    DecodeBench bench;
    const Reserved reserved = bench.reserve(1, 10, life(1));
    const KvPost post = bench.make_post(reserved, ids);
    Adopt adopt = bench.make_adopt(reserved, post, ids, life(1), 10);
    adopt.stops.stop_ids = {expected[3]};
    adopt.stops.min_tokens = min_tokens;
    bench.hear(kSource, post, life(1));
    bench.hear(kSource, adopt, life(1));
    bench.arrive_all(post);
    const size_t count = min_tokens <= 4 ? 3 : 9;
    CHECK(stream_of(bench, 1) ==
          std::vector<TokenId>(expected.begin() + 1, expected.begin() + 1 + count));
    CHECK(bench.context.expect<SlotFreed>().message.finish ==
          (min_tokens <= 4 ? Finish::stop : Finish::length));
  }
}

TEST_CASE("T64, T65: a continued request counts and replays what was committed") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(20);
  std::vector<TokenId> all = ids;
  const std::vector<TokenId> expected = expected_tokens(ids, 0, 10);
  all.insert(all.end(), expected.begin(), expected.begin() + 4);
  const Routing routing = life(1, 2);
  const Reserved reserved = bench.reserve(1, 24, routing);
  const KvPost post = bench.make_post(reserved, all);
  Adopt adopt =
      bench.make_adopt(reserved, post, ids, routing, 10, {expected.begin(), expected.begin() + 4});
  CHECK(adopt.first[0].id == expected[4]);
  adopt.sampling.repetition_penalty = 1.5f;
  adopt.sampling.prompt_logprobs = 3;
  bench.hear(kSource, post, routing);
  bench.arrive_all(post);
  bench.hear(kSource, adopt, routing);
  const BatchRow row = bench.engine.batch->rows[0];
  CHECK(row.position == 24);
  CHECK(row.prompt_tokens == 20);
  CHECK(row.sampling.prompt_logprobs == -1);
  CHECK(row.history.size() == 25);
  CHECK(row.history.back() == expected[4]);
  bench.step();
  const TokenEntry entry = bench.context.expect<Tokens>().message.entries[0];
  CHECK(entry.seq == 5);
  CHECK(entry.epoch.value == 2);
  CHECK(entry.id == expected[5]);
  CHECK(bench.engine.batch->rows[0].history.size() == 26);
  CHECK(stream_of(bench, 1) == std::vector<TokenId>(expected.begin() + 6, expected.end()));
  CHECK(bench.context.expect<SlotFreed>().message.finish == Finish::length);
}

TEST_CASE("history travels with a row only while penalties need it") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10));
  CHECK(bench.engine.batch->rows[0].history.empty());
  bench.step();
  CHECK(bench.engine.batch->rows[0].history.empty());
}

TEST_CASE("T90: the end of the context finishes one sequence by length, and no other") {
  ScriptedEngine::Shape shape;
  shape.context_max = 64;
  DecodeBench bench(shape);
  bench.admit(1, 1, some_prompt(60), 100);
  bench.admit(2, 2, some_prompt(10), 40);
  const std::vector<TokenId> expected = expected_tokens(some_prompt(60), 0, 4);
  std::vector<TokenId> ids;
  for (int i = 0; i < 5; ++i) {
    bench.step();
    for (const TokenEntry& entry : bench.context.expect<Tokens>().message.entries) {
      if (entry.request.value == 1) ids.push_back(entry.id);
    }
  }
  CHECK(ids == std::vector<TokenId>(expected.begin() + 1, expected.end()));
  CHECK(bench.context.expect<SlotFreed>().message.finish == Finish::length);
  CHECK(bench.actor->running() == 1);
}

TEST_CASE("T17: a cancelled sequence's slot and blocks are free within one step") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(20));
  bench.admit(2, 2, some_prompt(20));
  bench.step();
  bench.context.forget_sent();
  bench.hear(kScheduler, Cancel{}, life(1));
  bench.context.expect<Cancelled>();
  CHECK(bench.context.count<SlotFreed>() == 0);  // the step under way writes its block
  bench.step();
  const SlotFreed freed = bench.context.expect<SlotFreed>().message;
  CHECK(freed.finish == Finish::cancelled);
  CHECK(freed.slot.slot.value == 0);
  const Tokens tokens = bench.context.expect<Tokens>().message;
  REQUIRE(tokens.entries.size() == 1);
  CHECK(tokens.entries[0].request.value == 2);
  CHECK(bench.actor->counters().discarded == 1);
  CHECK(bench.engine.batch->rows.size() == 1);
}

TEST_CASE("S7, S8: a late token of a slot's last owner is never credited to the next one") {
  Limits limits;
  limits.decode_slots = 1;
  DecodeBench bench({}, limits);
  bench.admit(1, 1, some_prompt(20));
  bench.hear(kScheduler, Cancel{}, life(1));
  bench.hear(kScheduler, bench.make_reserve(2, 20), life(2));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::busy);
  bench.step();
  CHECK(bench.context.count<Tokens>() == 0);
  const Reserved reserved = bench.admit(2, 3, some_prompt(20, 9));
  CHECK(reserved.slots[0] == SlotLease{{0}, {2}});
  // A result with the old owner's key, whatever it says, is thrown away.
  StepDone stale;
  stale.step = bench.engine.batch->step;
  RowResult old;
  old.key = uint64_t{1} << 32;
  stale.rows = {old};
  bench.engine.batch.reset();
  bench.hear(kTarget, stale);
  CHECK(bench.context.count<Tokens>() == 0);
  CHECK(bench.actor->counters().discarded == 2);
  bench.step();
  CHECK(bench.context.expect<Tokens>().message.entries[0].id ==
        expected_tokens(some_prompt(20, 9), 0, 2)[1]);
}

TEST_CASE("a step of another life is not taken for one's own") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(20));
  bench.hear(kTarget, StepDone{{99}, {}, 0});
  CHECK(bench.actor->counters().stale == 1);
  bench.step();
  CHECK(bench.context.count<Tokens>() == 1);
}

TEST_CASE("T58: the last token, the end mark and SlotFreed come once, in this order") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10), 2);
  bench.context.forget_sent();
  bench.step();
  REQUIRE(bench.context.sent.size() == 2);
  CHECK(bench.context.sent[0].envelope.kind == MsgKind::tokens);
  CHECK(bench.context.sent[1].envelope.kind == MsgKind::slot_freed);
  CHECK(bench.context.sent[1].envelope.request.value == 1);
  CHECK(bench.context.sent[1].envelope.epoch.value == 1);
}

TEST_CASE("numbers that are none end one sequence with an error, and no other") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10));
  bench.admit(2, 2, some_prompt(20));
  bench.step();
  bench.context.forget_sent();
  bench.engine.adjust = [](const BatchRow& row, RowResult& result) {
    result.numerical_error = row.position < 15;
  };
  bench.step();
  Tokens tokens = bench.context.expect<Tokens>().message;
  REQUIRE(tokens.entries.size() == 2);
  if (tokens.entries[0].request.value != 1) std::swap(tokens.entries[0], tokens.entries[1]);
  CHECK(tokens.entries[0].finish == Finish::error);
  CHECK(!tokens.entries[0].has_token);
  CHECK(tokens.entries[0].seq == 2);
  CHECK(tokens.entries[1].request.value == 2);
  CHECK(tokens.entries[1].has_token);
  CHECK(tokens.entries[1].finish == Finish::none);
  CHECK(bench.context.expect<SlotFreed>().message.finish == Finish::error);
  CHECK(bench.actor->running() == 1);
}

TEST_CASE("T76, T80: when the pool is empty the youngest makes room, and the oldest gets through") {
  ScriptedEngine::Shape shape;
  shape.blocks = 6;
  DecodeBench bench(shape);
  bench.admit(1, 1, some_prompt(30), 50);
  bench.admit(2, 2, some_prompt(30), 50);
  bench.admit(3, 3, some_prompt(30), 50);
  CHECK(bench.actor->blocks_free() == 0);
  std::vector<uint64_t> preempted;
  std::vector<TokenId> oldest;
  for (int steps = 0; bench.engine.busy(); ++steps) {
    REQUIRE(steps < 200);
    bench.step();
    while (auto lost = bench.context.take<Preempted>()) {
      preempted.push_back(lost->envelope.request.value);
      const auto freed = bench.context.expect<SlotFreed>();
      CHECK(freed.message.slot == lost->message.slot);
      CHECK(freed.message.finish == Finish::none);
    }
    for (const TokenEntry& entry : bench.context.expect<Tokens>().message.entries) {
      if (entry.request.value == 1) oldest.push_back(entry.id);
    }
  }
  CHECK(preempted == std::vector<uint64_t>{3, 2});
  const std::vector<TokenId> expected = expected_tokens(some_prompt(30), 0, 50);
  CHECK(oldest == std::vector<TokenId>(expected.begin() + 1, expected.end()));
  CHECK(bench.actor->blocks_free() == 6);
  CHECK(bench.actor->slots_free() == 4);
  CHECK(bench.actor->counters().preempted == 2);
}

TEST_CASE("T76: two half-pool holders: one goes on, the other makes room itself") {
  ScriptedEngine::Shape shape;
  shape.blocks = 4;
  DecodeBench bench(shape);
  bench.admit(1, 1, some_prompt(31), 30);
  bench.admit(2, 2, some_prompt(31), 30);
  CHECK(stream_of(bench, 1).size() == 29);
  CHECK(bench.context.expect<Preempted>().envelope.request.value == 2);
  CHECK(bench.actor->blocks_free() == 4);
}

TEST_CASE("T80: a sequence alone with an empty pool ends with an error, said aloud") {
  ScriptedEngine::Shape shape;
  shape.blocks = 2;
  DecodeBench bench(shape);
  bench.admit(1, 1, some_prompt(30), 50);
  bench.step();
  bench.step();
  TokenEntry last;
  while (auto tokens = bench.context.take<Tokens>()) last = tokens->message.entries.back();
  CHECK(last.finish == Finish::error);
  CHECK(!last.has_token);
  CHECK(bench.context.expect<SlotFreed>().message.finish == Finish::error);
  CHECK(bench.actor->blocks_free() == 2);
}

TEST_CASE("T79: a sequence that needs a block waits for those of a reservation") {
  ScriptedEngine::Shape shape;
  shape.blocks = 4;
  DecodeBench bench(shape);
  bench.admit(1, 1, some_prompt(30), 20);
  bench.reserve(2, 20, life(2));
  bench.step();
  bench.step();
  CHECK(!bench.engine.busy());
  CHECK(bench.actor->running() == 1);
  bench.hear(kScheduler, Release{{2}}, life(2));
  bench.withdraw();
  CHECK(bench.engine.busy());
}

TEST_CASE("promise 12: a slot too far ahead of its reader pauses, the others do not") {
  Limits limits = DecodeBench::default_limits();
  limits.stream_ahead_max = 3;
  DecodeBench bench({}, limits);
  bench.admit(1, 1, some_prompt(10), 100);
  bench.admit(2, 2, some_prompt(20), 30);
  for (int step = 0; step < 20; ++step) {
    bench.step();
    bench.hear(kGateway, TokensAck{0, static_cast<uint32_t>(step + 1)}, life(2));
  }
  CHECK(bench.engine.batch->rows.size() == 1);
  size_t slow = 0;
  while (auto tokens = bench.context.take<Tokens>()) {
    for (const TokenEntry& entry : tokens->message.entries) slow += entry.request.value == 1;
  }
  CHECK(slow == 3);  // with the first one, four are not acknowledged
  bench.hear(kGateway, TokensAck{0, 2}, life(1));
  bench.step();
  CHECK(bench.engine.batch->rows.size() == 2);
}

TEST_CASE("what was not acknowledged is sent again, the prefill side's token included") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(10);
  bench.admit(1, 1, ids, 4);
  stream_of(bench, 1);
  CHECK(bench.context.expect<SlotFreed>().message.slots_free == 4);
  bench.hear(kGateway, Resend{0, 0}, life(1));
  const Tokens again = bench.context.expect<Tokens>(kGateway).message;
  REQUIRE(again.entries.size() == 4);
  const std::vector<TokenId> expected = expected_tokens(ids, 0, 4);
  for (uint32_t seq = 0; seq < 4; ++seq) {
    CHECK(again.entries[seq].seq == seq);
    CHECK(again.entries[seq].id == expected[seq]);
  }
  CHECK(again.entries[3].finish == Finish::length);
  bench.hear(kGateway, TokensAck{0, 2}, life(1));
  bench.hear(kGateway, Resend{0, 2}, life(1));
  CHECK(bench.context.expect<Tokens>().message.entries.size() == 2);
  bench.hear(kGateway, TokensAck{0, 4}, life(1));
  bench.hear(kGateway, Resend{0, 0}, life(1));
  CHECK(bench.context.count<Tokens>() == 0);
  CHECK(bench.actor->streams() == 0);
}

TEST_CASE("what nobody acknowledges is forgotten after a lease") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10), 4);
  stream_of(bench, 1);
  CHECK(bench.actor->streams() == 1);
  bench.context.advance(*bench.actor, DecodeBench::default_limits().lease_us + kSecond);
  CHECK(bench.actor->streams() == 0);
}

TEST_CASE("T6: blocks under a step are not given to anybody before it has ended") {
  ScriptedEngine::Shape shape;
  shape.blocks = 2;
  DecodeBench bench(shape);
  bench.admit(1, 1, some_prompt(20));
  bench.hear(kScheduler, Release{{1}}, life(1));
  bench.hear(kScheduler, bench.make_reserve(2, 20), life(2));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::busy);
  bench.step();
  CHECK(bench.context.count<SlotFreed>() == 1);
  bench.reserve(3, 20, life(2));
}

TEST_CASE("with more sequences than a step takes, all of them advance in turn") {
  ScriptedEngine::Shape shape;
  shape.step_tokens_max = 2;
  DecodeBench bench(shape);
  for (uint64_t i = 1; i <= 4; ++i) bench.admit(i, i, some_prompt(10, static_cast<TokenId>(i)), 12);
  std::map<uint64_t, int> tokens;
  for (int step = 0; step < 13; ++step) {
    bench.step();
    while (auto message = bench.context.take<Tokens>()) {
      for (const TokenEntry& entry : message->message.entries) ++tokens[entry.request.value];
    }
  }
  for (uint64_t i = 1; i <= 4; ++i) CHECK(tokens[i] >= 6);
}

TEST_CASE("a drained instance takes nothing new, finishes what it has, and says so once") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(10), 3);
  bench.hear(kScheduler, Drain{});
  bench.hear(kScheduler, bench.make_reserve(2, 10), life(2));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::unavailable);
  stream_of(bench, 1);
  CHECK(bench.context.count<Drained>() == 0);  // the gateway has not got it all
  bench.hear(kGateway, TokensAck{0, 3}, life(1));
  CHECK(bench.context.count<Drained>() == 1);
}

TEST_CASE("beats say what is free and what runs") {
  DecodeBench bench;
  bench.admit(1, 1, some_prompt(20));
  bench.reserve(2, 20, life(2));
  bench.context.advance(*bench.actor, 500 * kMillisecond);
  while (bench.context.count<Beat>() > 1) bench.context.expect<Beat>();
  const Beat beat = bench.context.expect<Beat>().message;
  CHECK(beat.slots_free == 2);
  CHECK(beat.blocks_free == 12);
  CHECK(beat.running == 1);
  CHECK(beat.queued == 1);
}

TEST_CASE("T15: a thousand requests that end in all ways leave every slot and block free") {
  DecodeBench bench;
  for (uint64_t i = 1; i <= 1000; ++i) {
    const uint32_t way = i % 5;
    if (way < 2) {
      bench.admit(i, i, some_prompt(10 + i % 40), 2 + i % 9);
      if (way == 1) bench.hear(kScheduler, Cancel{}, life(i));
      if (i % 3 == 0 && bench.engine.busy()) bench.step();
    } else {
      Reserve reserve = bench.make_reserve(i, 10 + i % 40);
      if (way == 4) reserve.source = {7, kPrefillSlot, static_cast<uint32_t>(i)};
      bench.hear(kScheduler, reserve, life(i));
      REQUIRE(bench.context.count<Reserved>() == 1);
      if (way == 2) bench.hear(kScheduler, Release{{i}}, life(i));
      if (way == 3) bench.hear(kScheduler, Cancel{}, life(i));
      if (way == 4) bench.hear(kScheduler, PeerDown{7, static_cast<uint32_t>(i)});
      bench.withdraw();
    }
    while (bench.engine.busy() &&
           (bench.actor->slots_free() < 2 || bench.actor->blocks_free() < 6)) {
      bench.step();
    }
    bench.context.forget_sent();
  }
  while (bench.engine.busy()) bench.step();
  CHECK(bench.actor->slots_free() == 4);
  CHECK(bench.actor->blocks_free() == 16);
  CHECK(bench.actor->reservations() == 0);
}

}  // namespace baton::test
