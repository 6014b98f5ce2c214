// Two versions of the weights at one worker: which rows share a step, and when a set goes.

#include "actors/worker/served_weights.h"

#include "tests/unit/actors/worker/benches.h"

#include <doctest/doctest.h>

namespace baton::test {
namespace {

template <class Bench>
void prepare(Bench& bench, uint64_t version, const std::string& path) {
  bench.hear(kScheduler, WeightsPrepare{{version, 9, {path, ""}}});
  bench.engine.finish_preparing(bench.context, *bench.actor);
}

template <class Bench>
void serve(Bench& bench, uint64_t version) {
  prepare(bench, version, "/w" + std::to_string(version));
  CHECK(bench.context.template expect<WeightsReady>().message.version == version);
  bench.hear(kScheduler, WeightsCommit{version});
  CHECK(bench.context.template expect<WeightsCommitted>().message.version == version);
}

// A whole hand-off of a request that runs on this version.
void adopt(DecodeBench& bench, uint64_t request, uint64_t version) {
  const Routing routing = life(request);
  const std::vector<TokenId> ids = some_prompt(20, static_cast<TokenId>(request));
  Reserve wanted = bench.make_reserve(request, 20);
  wanted.weights_version = version;
  bench.hear(kScheduler, wanted, routing);
  const Reserved reserved = bench.context.expect<Reserved>().message;
  const KvPost post = bench.make_post(reserved, ids);
  bench.hear(kSource, post, routing);
  bench.arrive_all(post);
  Adopt record = bench.make_adopt(reserved, post, ids, routing);
  record.weights_version = version;
  bench.hear(kSource, record, routing);
  bench.context.expect<Adopted>(kSource);
}

TEST_CASE("a worker prepares, commits and drops; a third set is refused with a sentence") {
  PrefillBench bench;
  serve(bench, 2);
  CHECK(bench.actor->weights().latest() == 2);
  CHECK(bench.actor->weights().serves(1));
  prepare(bench, 3, "/w3");
  const WeightsFailed failed = bench.context.expect<WeightsFailed>().message;
  CHECK(failed.refusal.code == ErrorCode::busy);
  CHECK(failed.refusal.text.find("2 sets of weights are in memory") == 0);
  bench.hear(kScheduler, WeightsDrop{1});
  CHECK(bench.context.expect<WeightsDropped>().message.version == 1);
  CHECK_FALSE(bench.actor->weights().serves(1));
  prepare(bench, 3, "/w3");
  CHECK(bench.context.expect<WeightsReady>().message.version == 3);
}

TEST_CASE("an aborted preparation says nothing more, and its version may be tried again") {
  PrefillBench bench;
  bench.hear(kScheduler, WeightsPrepare{{2, 9, {"/w2", ""}}});
  bench.hear(kScheduler, WeightsAbort{2});
  bench.engine.finish_preparing(bench.context, *bench.actor);
  CHECK(bench.context.count<WeightsReady>() == 0);
  bench.hear(kScheduler, WeightsCommit{2});  // of a defect elsewhere: not obeyed
  CHECK(bench.actor->weights().latest() == 1);
  serve(bench, 2);
}

TEST_CASE("the next life of a worker keeps what is committed and lets go of the rest") {
  PrefillBench bench;
  prepare(bench, 2, "/w2");
  CHECK(bench.engine.weights().size() == 2);
  const ServedWeights next(bench.engine);
  REQUIRE(bench.engine.weights().size() == 1);
  CHECK(next.latest() == 1);
}

TEST_CASE("prefill: prompts of one pack with different weights run in steps of their own") {
  PrefillBench bench;
  serve(bench, 2);
  Run first = bench.make_run(some_prompt(20), 1);
  first.weights_version = 1;
  bench.run(first, life(1));  // runs at once
  for (uint64_t i = 2; i <= 5; ++i) {
    Run run = bench.make_run(some_prompt(20, static_cast<TokenId>(i)), i);
    run.weights_version = i % 2 == 0 ? 2 : 1;
    bench.run(run, life(i));
  }
  std::vector<std::pair<uint64_t, size_t>> steps;  // version, rows
  while (bench.engine.busy()) {
    steps.emplace_back(bench.engine.batch->weights_version, bench.engine.batch->rows.size());
    bench.step();
  }
  CHECK(steps == std::vector<std::pair<uint64_t, size_t>>{{1, 1}, {2, 2}, {1, 2}});
  for (uint64_t i = 1; i <= 5; ++i) {
    const Tokens tokens = bench.context.expect<Tokens>(kGateway).message;
    const uint64_t request = tokens.entries.at(0).request.value;
    CHECK(tokens.entries[0].weights_version == (request != 1 && request % 2 == 0 ? 2 : 1));
  }
}

TEST_CASE("a request for weights that are not here is refused so that it is tried elsewhere") {
  PrefillBench bench;
  Run run = bench.make_run(some_prompt(20), 1);
  run.weights_version = 7;
  bench.run(run, life(1));
  const RunRefused refused = bench.context.expect<RunRefused>().message;
  CHECK(refused.refusal.code == ErrorCode::unavailable);
  CHECK(refused.refusal.text.find("version 7") == 0);

  DecodeBench decode;
  Reserve reserve = decode.make_reserve(1, 20);
  reserve.weights_version = 7;
  decode.hear(kScheduler, reserve, life(1));
  CHECK(decode.context.expect<ReserveRefused>().message.refusal.code == ErrorCode::unavailable);
}

TEST_CASE("decode: sequences with different weights take turns, and a set goes with its last one") {
  DecodeBench bench;
  serve(bench, 2);
  for (uint64_t i = 1; i <= 4; ++i) {
    adopt(bench, i, i <= 2 ? 1 : 2);
  }
  bench.hear(kScheduler, WeightsDrop{1});
  CHECK(bench.context.count<WeightsDropped>() == 0);
  std::vector<uint64_t> versions;
  while (bench.engine.busy()) {
    versions.push_back(bench.engine.batch->weights_version);
    for (const BatchRow& row : bench.engine.batch->rows) CHECK(row.tokens.size() == 1);
    bench.step();
  }
  REQUIRE(versions.size() >= 10);
  // Never twice in a row while both have something to do.
  for (size_t i = 2; i < 8; ++i) CHECK(versions[i] != versions[i + 1]);
  CHECK(bench.context.expect<WeightsDropped>().message.version == 1);
  CHECK(bench.engine.weights().size() == 1);
  while (const auto tokens = bench.context.take<Tokens>(kGateway)) {
    for (const TokenEntry& entry : tokens->message.entries) {
      CHECK(entry.weights_version == (entry.request.value <= 2 ? 1 : 2));
    }
  }
}

TEST_CASE("T97: weights change while a slot is paused: it ends on its own when it is read again") {
  Limits limits = DecodeBench::default_limits();
  limits.stream_ahead_max = 2;
  for (const bool cancelled : {false, true}) {
    CAPTURE(cancelled);
    DecodeBench bench({}, limits);
    const auto run_until_paused = [&] {
      while (bench.engine.busy()) bench.step();
    };
    adopt(bench, 1, 1);
    run_until_paused();
    serve(bench, 2);
    bench.hear(kScheduler, WeightsDrop{1});
    CHECK(bench.context.count<WeightsDropped>() == 0);
    adopt(bench, 2, 2);  // is not held up by the one that nobody reads
    REQUIRE(bench.engine.busy());
    CHECK(bench.engine.batch->weights_version == 2);
    run_until_paused();
    CHECK(bench.actor->running() == 2);
    if (cancelled) {
      bench.hear(kScheduler, Cancel{}, life(1));
    } else {
      bench.hear(kGateway, TokensAck{0, 2}, life(1));
      REQUIRE(bench.engine.busy());
      CHECK(bench.engine.batch->weights_version == 1);
      for (uint32_t next = 3; next <= 8; ++next) {
        run_until_paused();
        bench.hear(kGateway, TokensAck{0, next}, life(1));
      }
    }
    CHECK(bench.actor->running() == 1);
    CHECK(bench.context.expect<WeightsDropped>().message.version == 1);
    CHECK(bench.engine.weights().size() == 1);
    std::vector<TokenId> ids;
    while (auto tokens = bench.context.take<Tokens>(kGateway)) {
      for (const TokenEntry& entry : tokens->message.entries) {
        CHECK(entry.weights_version == entry.request.value);
        if (entry.request.value == 1) ids.push_back(entry.id);
      }
    }
    const auto expected = expected_tokens(some_prompt(20, 1), 0, 8);
    const size_t count = cancelled ? ids.size() : 7;  // the first one came from prefill
    REQUIRE(ids.size() == count);
    CHECK(std::equal(ids.begin(), ids.end(), expected.begin() + 1));
  }
}

}  // namespace
}  // namespace baton::test
