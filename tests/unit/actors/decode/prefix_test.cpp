// The prefix cache on the decode side, and prompts that it computes itself.

#include "tests/unit/actors/worker/benches.h"

#include <doctest/doctest.h>

namespace baton::test {
namespace {

constexpr PrefixHash kRoot{7, 7};
// Whoever lives there: that is how workers address it.
constexpr ActorId kAnyScheduler{0, kSchedulerSlot, kAnyIncarnation};

struct Bench : DecodeBench {
  using DecodeBench::DecodeBench;

  Reserve make_named(uint64_t transfer, const std::vector<TokenId>& ids,
                     PrefixHash root = kRoot) const {
    Reserve reserve = make_reserve(transfer, static_cast<uint32_t>(ids.size()));
    reserve.prefix.root = root;
    reserve.prefix.weights_version = kFirstWeights;
    reserve.prefix.blocks = prefix_chain(root, ids, engine.geometry().block_tokens);
    return reserve;
  }
  Reserved ask(const Reserve& reserve, const Routing& routing) {
    hear(kScheduler, reserve, routing);
    return context.expect<Reserved>().message;
  }
  // The transfer as the prefill side makes it: positions behind the hit, and the record.
  void transfer(const Reserved& reserved, const std::vector<TokenId>& ids, const Routing& routing,
                uint32_t max_tokens = 8, std::vector<TokenId> committed = {}) {
    std::vector<TokenId> all = ids;
    all.insert(all.end(), committed.begin(), committed.end());
    KvPost post = make_post(reserved, {all.begin() + reserved.hit_tokens, all.end()});
    hear(kSource, post, routing);
    arrive_all(post);
    hear(kSource, make_adopt(reserved, post, ids, routing, max_tokens, committed), routing);
  }
  // A whole request, from Reserve to its last token; what the client gets.
  std::vector<TokenId> whole(uint64_t number, const std::vector<TokenId>& ids,
                             uint32_t max_tokens = 8) {
    const Routing routing = life(number);
    last = ask(make_named(number, ids), routing);
    transfer(last, ids, routing, max_tokens);
    return finish();
  }
  std::vector<TokenId> start(uint64_t number, const std::vector<TokenId>& ids,
                             uint32_t max_tokens = 8, std::vector<TokenId> committed = {}) {
    begin_local(number, ids, max_tokens, std::move(committed));
    return finish();
  }
  void begin_local(uint64_t number, const std::vector<TokenId>& ids, uint32_t max_tokens = 8,
                   std::vector<TokenId> committed = {}) {
    std::vector<TokenId> all = ids;
    all.insert(all.end(), committed.begin(), committed.end());
    Reserve reserve = make_named(number, all);
    reserve.local_tokens = UINT32_MAX;
    reserve.source = {};
    last = ask(reserve, life(number));
    CHECK(last.local);
    CHECK(last.blocks.empty());
    Start start;
    start.transfer = reserve.transfer;
    start.gateway = kGateway;
    start.ids = ids;
    start.committed = {std::move(committed)};
    start.stops.max_tokens = max_tokens;
    hear(kScheduler, start, life(number));
  }
  // Steps until nothing is left to compute; all tokens that were sent, in order.
  std::vector<TokenId> finish() {
    std::vector<TokenId> tokens;
    rows = {};
    while (engine.busy()) {
      for (const BatchRow& row : engine.batch->rows) rows.push_back(row);
      weights = engine.batch->weights_version;
      step();
    }
    while (const auto sent = context.take<Tokens>()) {
      for (const TokenEntry& entry : sent->message.entries) tokens.push_back(entry.id);
    }
    adopted = {};
    while (const auto sent = context.take<Adopted>(kAnyScheduler)) adopted.push_back(sent->message);
    context.forget_sent();
    CHECK(actor->running() == 0);
    CHECK(actor->blocks_free() == engine.block_count());
    CHECK(actor->slots_free() == 4);
    return tokens;
  }

  Reserved last;
  std::vector<BatchRow> rows;    // of the last finish()
  uint64_t weights = 0;          // of its steps
  std::vector<Adopted> adopted;  // likewise, what the scheduler was told
};

// What a client gets beyond the token that the prefill side sampled.
std::vector<TokenId> decoded(const std::vector<TokenId>& ids, uint32_t count) {
  std::vector<TokenId> tokens = expected_tokens(ids, 0, count);
  tokens.erase(tokens.begin());
  return tokens;
}

}  // namespace

TEST_CASE("what is here of a prompt is not transferred again, and the answer is the same") {
  Bench bench;
  const auto ids = some_prompt(40);
  CHECK(bench.whole(1, ids) == decoded(ids, 8));
  CHECK(bench.last.hit_tokens == 0);
  CHECK(bench.last.blocks.size() == 3);
  CHECK(bench.whole(2, ids) == decoded(ids, 8));
  CHECK(bench.last.hit_tokens == 32);
  CHECK(bench.last.blocks.size() == 1);
  auto other = ids;
  other[20] = 999;
  CHECK(bench.whole(3, other) == decoded(other, 8));
  CHECK(bench.last.hit_tokens == 16);
}

TEST_CASE("T46, T50: with every block of a prompt here, the last one still comes by transfer") {
  Bench bench;
  const auto ids = some_prompt(48);
  bench.whole(1, ids);
  CHECK(bench.actor->blocks_cached() == 3);
  CHECK(bench.whole(2, ids) == decoded(ids, 8));
  CHECK(bench.last.hit_tokens == 32);
  CHECK(bench.last.blocks.size() == 1);
}

TEST_CASE("T44: a prompt that is one token longer than the blocks that are here") {
  Bench bench;
  auto ids = some_prompt(32);
  bench.whole(1, ids);
  ids.push_back(123);
  CHECK(bench.whole(2, ids) == decoded(ids, 8));
  CHECK(bench.last.hit_tokens == 32);
  CHECK(bench.last.blocks.size() == 1);
}

TEST_CASE("full blocks of the output are kept too: the next turn of a conversation finds them") {
  Bench bench;
  auto ids = some_prompt(20);
  const auto output = expected_tokens(ids, 0, 40);
  bench.whole(1, ids, 40);
  ids.insert(ids.end(), output.begin(), output.end());
  ids.push_back(77);
  CHECK(bench.whole(2, ids) == decoded(ids, 8));
  CHECK(bench.last.hit_tokens == 48);  // 59 positions were in the KV store
}

TEST_CASE("a running sequence's blocks serve others that begin alike") {
  Bench bench;
  const auto ids = some_prompt(40);
  const Routing first = life(1);
  bench.transfer(bench.ask(bench.make_named(1, ids), first), ids, first, 200);
  CHECK(bench.ask(bench.make_named(2, ids), life(2)).hit_tokens == 32);
}

TEST_CASE("T96: neither another tenant nor other weights find what was kept") {
  Bench bench;
  const auto ids = some_prompt(40);
  bench.whole(1, ids);
  CHECK(bench.ask(bench.make_named(2, ids, {8, 8}), life(2)).hit_tokens == 0);
  // The names say version 9, but the request runs on the first: neither look-up nor keeping.
  Reserve reserve = bench.make_named(3, ids);
  reserve.prefix.weights_version = 9;
  CHECK(bench.ask(reserve, life(3)).hit_tokens == 0);
  Reserve unkept = bench.make_named(4, some_prompt(40, 555));
  unkept.prefix.weights_version = 9;
  const uint32_t cached = bench.actor->blocks_cached();
  bench.transfer(bench.ask(unkept, life(4)), some_prompt(40, 555), life(4));
  CHECK(bench.actor->blocks_cached() == cached);
}

TEST_CASE("cached blocks count as free, and those that a reservation holds are not evicted") {
  ScriptedEngine::Shape shape;
  shape.blocks = 5;
  Bench bench(shape);
  const auto ids = some_prompt(40);
  bench.whole(1, ids);
  CHECK(bench.actor->blocks_free() == 5);
  const Reserved held = bench.ask(bench.make_named(2, ids), life(2));
  REQUIRE(held.hit_tokens == 32);
  CHECK(held.blocks_held == 3);
  CHECK(bench.actor->blocks_free() == 2);
  bench.hear(kScheduler, bench.make_named(3, some_prompt(40, 500)), life(3));
  CHECK(bench.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::busy);
  bench.transfer(held, ids, life(2));
  CHECK(bench.finish() == decoded(ids, 8));
  CHECK(bench.whole(4, some_prompt(70, 500)) == decoded(some_prompt(70, 500), 8));
  CHECK(bench.last.blocks_held == 5);  // it took what had been cached
}

TEST_CASE("a prompt is computed here from the first position that is missing, beside the others") {
  DecodeOptions options;
  options.catch_up_tokens = 16;
  Bench bench({}, Bench::default_limits(), options);
  const auto ids = some_prompt(70);
  CHECK(bench.start(1, ids) == expected_tokens(ids, 0, 8));
  REQUIRE(bench.adopted.size() == 2);
  CHECK(bench.adopted[0].usage.cached_tokens == 0);
  CHECK(bench.adopted[1].usage.prefill_rank == 2);
  CHECK(bench.start(2, ids) == expected_tokens(ids, 0, 8));
  CHECK(bench.adopted[1].usage.cached_tokens == 64);
  CHECK(bench.rows[0].position == 64);
  CHECK(bench.rows[0].tokens.size() == 6);
  CHECK(bench.weights == kFirstWeights);
  // A transfer finds what was computed here, and the other way round.
  CHECK(bench.whole(3, ids) == decoded(ids, 8));
  CHECK(bench.last.hit_tokens == 64);
  CHECK(bench.actor->counters().local_prefills == 2);
}

TEST_CASE("whether a prompt is computed here is decided by what is missing") {
  Bench bench;
  const auto ids = some_prompt(40);
  bench.whole(1, ids);
  Reserve reserve = bench.make_named(2, ids);
  reserve.local_tokens = 7;
  CHECK_FALSE(bench.ask(reserve, life(2)).local);  // 8 are missing
  reserve = bench.make_named(3, ids);
  reserve.local_tokens = 8;
  CHECK(bench.ask(reserve, life(3)).local);
}

TEST_CASE("a local prefill goes on from committed tokens, and only its own tokens are sent") {
  Bench bench;
  const auto ids = some_prompt(30);
  const auto all = expected_tokens(ids, 0, 12);
  const std::vector<TokenId> committed(all.begin(), all.begin() + 5);
  const auto rest = bench.start(1, ids, 12, committed);
  CHECK(rest == std::vector<TokenId>(all.begin() + 5, all.end()));
}

TEST_CASE("a local prefill is cancelled, released and lost like any sequence") {
  DecodeOptions options;
  options.catch_up_tokens = 16;
  Bench bench({}, Bench::default_limits(), options);
  const auto ids = some_prompt(100);
  bench.begin_local(1, ids);
  bench.hear(kScheduler, Cancel{}, life(1));
  CHECK(bench.finish().empty());
  bench.begin_local(2, ids);
  bench.step();
  bench.hear(kScheduler, Release{{2}}, life(2));
  bench.finish();
  // The death of the prefill instance that was chosen at first is nothing to it.
  Reserve reserve = bench.make_named(3, ids);
  reserve.local_tokens = 200;
  CHECK(bench.ask(reserve, life(3)).local);
  bench.hear(kScheduler, PeerDown{kSource.rank, kSource.incarnation});
  CHECK_FALSE(bench.context.take<AdoptFailed>());
  bench.hear(kScheduler, Release{{3}}, life(3));
  bench.finish();
}

TEST_CASE("a Start without its reservation, or that does not match it, is refused aloud") {
  Bench bench;
  Start start;
  start.transfer = {5};
  start.ids = some_prompt(10);
  bench.hear(kScheduler, start, life(1));
  CHECK(bench.context.expect<AdoptFailed>(kAnyScheduler).message.transfer == TransferId{5});
  Reserve reserve = bench.make_named(6, some_prompt(12));
  reserve.local_tokens = 100;
  bench.ask(reserve, life(1));
  start.transfer = {6};
  bench.hear(kScheduler, start, life(1));
  CHECK(bench.context.expect<AdoptFailed>(kAnyScheduler).message.refusal.text.find("12") !=
        std::string::npos);
  CHECK(bench.actor->blocks_free() == bench.engine.block_count());
}

TEST_CASE("a scored prompt is computed here whole, and the scores are those of all its tokens") {
  DecodeOptions options;
  options.catch_up_tokens = 16;
  Bench bench({}, Bench::default_limits(), options);
  const auto ids = some_prompt(40);
  Reserve reserve = bench.make_named(1, ids);
  reserve.prefix.blocks.clear();
  reserve.local_tokens = 100;
  bench.ask(reserve, life(1));
  Start start;
  start.transfer = {1};
  start.gateway = kGateway;
  start.ids = ids;
  start.committed = {{}};
  start.stops.max_tokens = 4;
  start.sampling.prompt_logprobs = 0;
  bench.hear(kScheduler, start, life(1));
  while (bench.engine.busy()) bench.step();
  const auto scores = bench.context.expect<PromptScores>().message.logprobs;
  REQUIRE(scores.size() == 39);
  for (size_t i = 0; i < scores.size(); ++i) CHECK(scores[i] == token_logprob(ids[i], ids[i + 1]));
  CHECK(bench.finish() == expected_tokens(ids, 0, 4));
  // What it has computed serves others.
  CHECK(bench.ask(bench.make_named(2, ids), life(2)).hit_tokens == 32);
}

TEST_CASE(
    "T76, T79: in a pool that is too small for all, the youngest give way and come back, and "
    "what they had computed is used again where it is still there") {
  ScriptedEngine::Shape shape;
  shape.blocks = 8;
  Bench bench(shape);
  const auto a = some_prompt(40, 1);
  const auto b = some_prompt(40, 300);
  bench.begin_local(1, a, 60);
  bench.begin_local(2, b, 60);
  int preemptions = 0;
  std::map<uint64_t, std::vector<TokenId>> got;
  uint64_t transfer = 2;
  for (int turn = 0; turn < 2000 && (got[1].size() < 60 || got[2].size() < 60); ++turn) {
    if (bench.engine.busy()) bench.step();
    while (const auto sent = bench.context.take<Tokens>()) {
      for (const TokenEntry& e : sent->message.entries) {
        CHECK(e.seq == got[e.request.value].size());
        got[e.request.value].push_back(e.id);
      }
    }
    const auto lost = bench.context.take<Preempted>();
    if (!lost) continue;
    ++preemptions;
    CHECK(lost->envelope.request == RequestId{2});
    // It comes back when there is room again.
    while (bench.actor->running() > 0) {
      bench.step();
      while (const auto sent = bench.context.take<Tokens>()) {
        for (const TokenEntry& e : sent->message.entries) got[e.request.value].push_back(e.id);
      }
    }
    std::vector<TokenId> all = b;
    all.insert(all.end(), got[2].begin(), got[2].end());
    Reserve reserve = bench.make_named(++transfer, all);
    reserve.local_tokens = UINT32_MAX;
    reserve.source = {};
    bench.ask(reserve, life(2, 2));
    Start start;
    start.transfer = {transfer};
    start.gateway = kGateway;
    start.ids = b;
    start.committed = {got[2]};
    start.stops.max_tokens = 60;
    bench.hear(kScheduler, start, life(2, 2));
  }
  CHECK(preemptions == 1);
  CHECK(got[1] == expected_tokens(a, 0, 60));
  CHECK(got[2] == expected_tokens(b, 0, 60));
  CHECK(bench.actor->blocks_free() == 8);
}

}  // namespace baton::test
