#include <map>

#include "tests/unit/actors/worker/benches.h"

namespace baton::test {
namespace {

using Streams = std::map<uint32_t, std::vector<TokenId>>;  // by choice

// What is handed over for a request of several choices: those of `committed`, which may be empty
// each, by number.
struct HandOff {
  std::vector<TokenId> ids;
  std::vector<std::vector<TokenId>> committed;
  uint32_t max_tokens = 8;
  uint32_t epoch = 1;
  std::vector<uint32_t> choices = {};  // empty: 0, 1, ..
  std::function<void(Adopt&)> change = {};
};

Adopt adopt_of(DecodeBench& bench, const HandOff& hand, const Reserved& reserved,
               const KvPost& post, const Routing& routing) {
  Adopt adopt = bench.make_adopt(reserved, post, hand.ids, routing, hand.max_tokens);
  adopt.committed = hand.committed;
  const TokenEntry sample = adopt.first[0];
  adopt.first.clear();
  for (uint32_t i = 0; i < hand.committed.size(); ++i) {
    TokenEntry& first = adopt.first.emplace_back(sample);
    first.choice = hand.choices.empty() ? i : hand.choices[i];
    first.seq = static_cast<uint32_t>(hand.committed[i].size());
    first.has_token = hand.committed[i].empty();
    first.id = first.has_token ? next_token(hand.ids, first.choice, 1000) : 0;
  }
  if (hand.change) hand.change(adopt);
  return adopt;
}

// A whole hand-off; the choices run afterwards.
Reserved admit(DecodeBench& bench, uint64_t request, const HandOff& hand) {
  const Routing routing = life(request, hand.epoch);
  Reserve reserve =
      bench.make_reserve(request * 10 + hand.epoch, static_cast<uint32_t>(hand.ids.size()));
  reserve.n = static_cast<uint32_t>(hand.committed.size());
  for (const auto& committed : hand.committed) {
    reserve.own_tokens = std::max(reserve.own_tokens, static_cast<uint32_t>(committed.size()));
  }
  bench.hear(kScheduler, reserve, routing);
  const Reserved reserved = bench.context.expect<Reserved>().message;
  const KvPost post = bench.make_post(reserved, hand.ids);
  bench.hear(kSource, post, routing);
  bench.arrive_all(post);
  bench.hear(kSource, adopt_of(bench, hand, reserved, post, routing), routing);
  bench.context.expect<Adopted>(kSource);
  bench.context.expect<Adopted>();
  while (bench.context.take<KvDone>()) {
  }
  return reserved;
}

void collect(DecodeBench& bench, uint64_t request, Streams& streams) {
  while (auto tokens = bench.context.take<Tokens>()) {
    for (const TokenEntry& entry : tokens->message.entries) {
      if (entry.request.value != request || !entry.has_token) continue;
      CHECK(entry.kept);
      streams[entry.choice].push_back(entry.id);
    }
  }
}

Streams run_out(DecodeBench& bench, uint64_t request) {
  Streams streams;
  for (int steps = 0; bench.engine.busy(); ++steps) {
    REQUIRE(steps < 2000);
    bench.step();
    collect(bench, request, streams);
  }
  return streams;
}

// Tokens [from, to) of a choice.
std::vector<TokenId> part(const std::vector<TokenId>& ids, uint32_t choice, uint32_t from,
                          uint32_t to) {
  const std::vector<TokenId> all = expected_tokens(ids, choice, to);
  return {all.begin() + from, all.end()};
}

Limits slots(size_t count) {
  Limits limits;
  limits.decode_slots = count;
  return limits;
}

}  // namespace

TEST_CASE("T60: the choices of a request run to their ends from one hand-off") {
  for (const uint32_t prompt : {1u, 15u, 16u, 17u, 32u, 45u}) {
    CAPTURE(prompt);
    DecodeBench bench;
    const std::vector<TokenId> ids = some_prompt(prompt);
    const Reserved reserved = admit(bench, 1, {ids, {{}, {}, {}, {}}, 20});
    CHECK(reserved.slots.size() == 4);
    const uint32_t full = prompt / 16;  // blocks that nobody writes any more are there once
    CHECK(reserved.blocks_held == full + 4);
    CHECK(bench.actor->blocks_free() == 16 - full - 4);
    Streams streams = run_out(bench, 1);
    for (uint32_t c = 0; c < 4; ++c) CHECK(streams[c] == part(ids, c, 1, 20));
    CHECK(bench.actor->counters().copied_blocks == (prompt % 16 == 0 ? 0 : 3));
    CHECK(bench.actor->blocks_free() == 16);
    CHECK(bench.actor->slots_free() == 4);
    CHECK(bench.context.count<SlotFreed>() == 4);
  }
}

TEST_CASE("T56, T58: each choice ends by itself and frees its slot once") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(20, 3);
  const TokenId stop = expected_tokens(ids, 1, 4)[3];
  for (const uint32_t other : {0u, 2u}) {  // that it is no token of theirs
    const std::vector<TokenId> tokens = expected_tokens(ids, other, 9);
    REQUIRE(std::find(tokens.begin(), tokens.end(), stop) == tokens.end());
  }
  admit(bench, 1, {ids, {{}, {}, {}}, 9, 1, {}, [&](Adopt& a) { a.stops.stop_ids = {stop}; }});
  bench.step();
  bench.step();
  bench.step();
  const SlotFreed first = bench.context.expect<SlotFreed>().message;
  CHECK(first.choice == 1);
  CHECK(first.finish == Finish::stop);
  CHECK(first.slots_free == 2);
  CHECK(bench.actor->running() == 2);
  Streams streams;
  collect(bench, 1, streams);
  for (auto& [choice, rest] : run_out(bench, 1)) {
    streams[choice].insert(streams[choice].end(), rest.begin(), rest.end());
  }
  CHECK(streams[0] == part(ids, 0, 1, 9));
  CHECK(streams[1] == part(ids, 1, 1, 4));
  CHECK(streams[2] == part(ids, 2, 1, 9));
  CHECK(bench.context.count<SlotFreed>() == 2);
}

TEST_CASE("T56, T60: a choice that its first token finished takes no slot, but can be asked for") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(20);
  admit(bench, 1,
        {ids, {{}, {}, {}}, 5, 1, {}, [](Adopt& a) { a.first[1].finish = Finish::stop; }});
  const SlotFreed freed = bench.context.expect<SlotFreed>().message;
  CHECK(freed.choice == 1);
  CHECK(freed.finish == Finish::stop);
  CHECK(bench.actor->running() == 2);
  bench.hear(kGateway, Resend{1, 0}, life(1));
  const Tokens again = bench.context.expect<Tokens>().message;
  REQUIRE(again.entries.size() == 1);
  CHECK(again.entries[0].id == expected_tokens(ids, 1, 1)[0]);
  CHECK(again.entries[0].finish == Finish::stop);
  Streams streams = run_out(bench, 1);
  CHECK(streams[0] == part(ids, 0, 1, 5));
  CHECK(streams[2] == part(ids, 2, 1, 5));
  CHECK(!streams.contains(1));
  CHECK(bench.actor->blocks_free() == 16);
}

TEST_CASE("a choice whose text has ended at the gateway frees its slot, the others go on") {
  DecodeBench bench;
  const std::vector<TokenId> ids = some_prompt(20);
  admit(bench, 1, {ids, {{}, {}}, 9});
  bench.step();
  bench.context.forget_sent();
  bench.hear(kGateway, TokensAck{0, 2, true}, life(1));
  bench.step();
  const SlotFreed freed = bench.context.expect<SlotFreed>().message;
  CHECK(freed.choice == 0);
  CHECK(freed.finish == Finish::stop);
  Streams streams;
  collect(bench, 1, streams);
  for (auto& [choice, rest] : run_out(bench, 1)) {
    streams[choice].insert(streams[choice].end(), rest.begin(), rest.end());
  }
  CHECK(streams[0].empty());
  CHECK(streams[1] == part(ids, 1, 2, 9));
  bench.hear(kGateway, TokensAck{0, 9, true}, life(1));  // said again: nobody is meant
  CHECK(bench.context.count<SlotFreed>() == 1);
}

TEST_CASE("T64, T65: choices go on from what each had, in chunks of any size") {
  const std::vector<TokenId> ids = some_prompt(21);
  for (const uint32_t chunk : {1u, 3u, 16u, 1000u}) {
    CAPTURE(chunk);
    ScriptedEngine::Shape shape;
    shape.blocks = 32;
    DecodeOptions options;
    options.catch_up_tokens = chunk;
    DecodeBench bench(shape, slots(5), options);
    bench.admit(9, 9, some_prompt(5), 70);  // somebody else decodes beside
    const HandOff hand{ids, {part(ids, 0, 0, 40), {}, part(ids, 3, 0, 5)}, 50, 2, {0, 1, 3}};
    admit(bench, 1, hand);
    uint32_t caught_up_with_others = 0;
    Streams streams;
    for (int steps = 0; bench.engine.busy(); ++steps) {
      REQUIRE(steps < 500);
      uint32_t longer = 0;
      for (const BatchRow& row : bench.engine.batch->rows) {
        if (row.tokens.size() > 1) longer += static_cast<uint32_t>(row.tokens.size());
      }
      if (bench.actor->running() == 4 && bench.engine.batch->rows.size() > 1) {
        CHECK(longer <= std::max(chunk, 2u));
        caught_up_with_others += longer;
      }
      bench.step();
      collect(bench, 1, streams);
    }
    CHECK(streams[0] == part(ids, 0, 40, 50));
    CHECK(streams[1] == part(ids, 1, 1, 50));
    CHECK(streams[3] == part(ids, 3, 5, 50));
    CHECK(bench.actor->counters().caught_up >= 43);
    if (chunk > 1) CHECK(caught_up_with_others > 0);
    CHECK(bench.actor->blocks_free() == 32);
  }
}

TEST_CASE("the others' tokens do not wait for one that catches up") {
  ScriptedEngine::Shape shape;
  shape.blocks = 40;
  DecodeOptions options;
  options.catch_up_tokens = 8;
  DecodeBench bench(shape, slots(4), options);
  bench.admit(9, 9, some_prompt(5), 200);
  const std::vector<TokenId> ids = some_prompt(16);
  admit(bench, 1, {ids, {part(ids, 0, 0, 90), part(ids, 1, 0, 90)}, 100, 2});
  bench.step();
  for (int step = 0; step < 20; ++step) {
    bench.context.forget_sent();
    bench.step();
    bool other = false;
    while (auto tokens = bench.context.take<Tokens>()) {
      for (const TokenEntry& entry : tokens->message.entries) {
        other = other || entry.request.value == 9;
      }
    }
    CHECK(other);
  }
}

TEST_CASE("T76: a request that makes room loses all its choices, said once") {
  ScriptedEngine::Shape shape;
  shape.blocks = 6;
  DecodeBench bench(shape);
  bench.admit(1, 1, some_prompt(30), 60);
  admit(bench, 2, {some_prompt(20), {{}, {}, {}}, 40});
  CHECK(bench.actor->blocks_free() == 0);
  while (bench.context.count<Preempted>() == 0) {
    REQUIRE(bench.engine.busy());
    bench.step();
  }
  CHECK(bench.context.expect<Preempted>().envelope.request.value == 2);
  CHECK(bench.context.count<Preempted>() == 0);
  CHECK(bench.context.count<SlotFreed>() == 3);
  CHECK(bench.actor->running() == 1);
  CHECK(bench.actor->counters().preempted == 1);
  Streams streams = run_out(bench, 1);
  CHECK(bench.actor->blocks_free() == 6);
}

TEST_CASE("T76, T80: choices that do not fit together run one after the other") {
  const std::vector<TokenId> ids = some_prompt(30);
  for (const uint32_t blocks : {6u, 7u, 9u, 12u}) {
    CAPTURE(blocks);
    ScriptedEngine::Shape shape;
    shape.blocks = blocks;  // one choice needs 6 at its end
    DecodeBench bench(shape);
    admit(bench, 1, {ids, {{}, {}, {}, {}}, 60});
    Streams streams = run_out(bench, 1);
    for (uint32_t c = 0; c < 4; ++c) CHECK(streams[c] == part(ids, c, 1, 60));
    CHECK(bench.actor->counters().set_aside > 0);
    CHECK(bench.context.count<Preempted>() == 0);
    CHECK(bench.context.count<SlotFreed>() == 4);
    CHECK(bench.actor->blocks_free() == blocks);
  }
}

TEST_CASE("T5, T17: Cancel, Release and the next life end every choice") {
  for (const int way : {0, 1, 2}) {
    CAPTURE(way);
    DecodeBench bench;
    const Reserved reserved = admit(bench, 1, {some_prompt(20), {{}, {}, {}}, 40});
    if (way > 0) bench.step();
    bench.context.forget_sent();
    if (way == 0) bench.hear(kScheduler, Release{reserved.transfer}, life(1));
    if (way == 1) bench.hear(kScheduler, Cancel{}, life(1));
    if (way == 2) bench.hear(kScheduler, bench.make_reserve(99, 10), life(1, 2));
    bench.step();
    CHECK(bench.context.count<SlotFreed>() == 3);
    CHECK(bench.actor->running() == 0);
    CHECK(bench.actor->streams() == 0);
    if (way < 2) CHECK(bench.actor->blocks_free() == 16);
  }
}

TEST_CASE("T60: more choices than slots are refused with both numbers, too few free ones for now") {
  DecodeBench bench;
  Reserve reserve = bench.make_reserve(1, 20);
  reserve.n = 5;
  bench.hear(kScheduler, reserve, life(1));
  const Refusal refusal = bench.context.expect<ReserveRefused>().message.refusal;
  CHECK(refusal.code == ErrorCode::unsupported);
  CHECK(refusal.text.find("5 choices") != std::string::npos);
  CHECK(refusal.text.find("4 slots") != std::string::npos);
  bench.admit(2, 2, some_prompt(10));
  reserve.n = 4;
  bench.hear(kScheduler, reserve, life(1));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::busy);
  CHECK(bench.actor->slots_free() == 3);
  reserve.n = 3;
  bench.hear(kScheduler, reserve, life(1));
  CHECK(bench.context.expect<Reserved>().message.slots.size() == 3);
  bench.hear(kScheduler, Release{{1}}, life(1));
  bench.withdraw();
  CHECK(bench.context.count<SlotFreed>() == 3);
}

TEST_CASE("promise 12: a choice that nobody reads pauses, its siblings do not") {
  Limits limits = DecodeBench::default_limits();
  limits.stream_ahead_max = 3;
  DecodeBench bench({}, limits);
  admit(bench, 1, {some_prompt(10), {{}, {}}, 60});
  Streams streams;
  for (uint32_t step = 1; step < 20; ++step) {
    bench.step();
    collect(bench, 1, streams);
    bench.hear(kGateway, TokensAck{1, step}, life(1));
  }
  CHECK(streams[0].size() == 3);
  CHECK(streams[1].size() > 15);
}

TEST_CASE(
    "S8: looking every N steps gives the same tokens, and what is beyond an end is no token") {
  const std::vector<TokenId> ids = some_prompt(20);
  const TokenId stop = expected_tokens(ids, 1, 7)[6];
  Streams right;
  size_t messages = 0;
  for (const uint32_t every : {1u, 2u, 4u, 10u}) {
    CAPTURE(every);
    DecodeOptions options;
    options.min_decode_steps = every;
    DecodeBench bench({}, slots(4), options);
    admit(bench, 1, {ids, {{}, {}}, 30, 1, {}, [&](Adopt& a) { a.stops.stop_ids = {stop}; }});
    Streams streams;
    size_t sent = 0;
    for (int steps = 0; bench.engine.busy(); ++steps) {
      REQUIRE(steps < 100);
      bench.step();
      sent += bench.context.count<Tokens>();
      collect(bench, 1, streams);
    }
    if (every == 1) right = streams;
    CHECK(streams == right);
    CHECK(streams[1] == part(ids, 1, 1, 7));
    CHECK(streams[0] == part(ids, 0, 1, 30));
    const DecodeCounters& counters = bench.actor->counters();
    CHECK(counters.tokens == 29 + 6);
    CHECK((counters.overshoot > 0) == (every == 4 || every == 10));
    if (every == 1) messages = sent;
    if (every == 10) CHECK(sent * 5 < messages);
    CHECK(bench.context.count<SlotFreed>() == 2);
    CHECK(bench.actor->blocks_free() == 16);
  }
}

TEST_CASE("T90, S8: no look, no step beyond the context or the limit of tokens") {
  ScriptedEngine::Shape shape;
  shape.context_max = 24;
  DecodeOptions options;
  options.min_decode_steps = 7;
  DecodeBench bench(shape, slots(4), options);
  const std::vector<TokenId> ids = some_prompt(20);
  bench.admit(1, 1, ids, 100);
  bench.admit(2, 2, some_prompt(5), 3);
  Streams streams = run_out(bench, 1);
  CHECK(streams[0] == part(ids, 0, 1, 4));
  CHECK(bench.context.count<SlotFreed>() == 2);
  CHECK(bench.actor->counters().overshoot == 0);
}

TEST_CASE("T15: hundreds of requests of all sizes that end in all ways leave nothing behind") {
  ScriptedEngine::Shape shape;
  shape.blocks = 24;
  DecodeOptions options;
  options.catch_up_tokens = 5;
  DecodeBench bench(shape, slots(6), options);
  for (uint64_t i = 1; i <= 400; ++i) {
    const auto n = static_cast<uint32_t>(1 + i % 4);
    const std::vector<TokenId> ids = some_prompt(1 + i % 37, static_cast<TokenId>(i));
    HandOff hand{ids, {}, static_cast<uint32_t>(6 + i % 20), 2};
    for (uint32_t c = 0; c < n; ++c) {
      const bool fresh = n == 1 || (i + c) % 3 == 0;
      hand.committed.push_back(fresh ? std::vector<TokenId>{}
                                     : part(ids, c, 0, static_cast<uint32_t>((i + c) % 6)));
    }
    const Reserved reserved = admit(bench, i, hand);
    for (uint64_t step = 0; step < i % 7 && bench.engine.busy(); ++step) bench.step();
    if (i % 4 == 0) bench.hear(kScheduler, Cancel{}, life(i, 2));
    if (i % 4 == 1) bench.hear(kScheduler, Release{reserved.transfer}, life(i, 2));
    if (i % 4 == 2) bench.hear(kGateway, TokensAck{n - 1, 100, true}, life(i, 2));
    while (bench.engine.busy() &&
           (bench.actor->slots_free() < 4 || bench.actor->blocks_free() < 12)) {
      bench.step();
    }
    bench.context.forget_sent();
  }
  while (bench.engine.busy()) bench.step();
  CHECK(bench.actor->slots_free() == 6);
  CHECK(bench.actor->blocks_free() == 24);
}

}  // namespace baton::test
