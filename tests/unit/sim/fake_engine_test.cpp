#include "runtime/engine/fake_engine.h"

#include "runtime/actor/wire.h"

#include <doctest/doctest.h>

#include <optional>

namespace baton {
namespace {

// An engine whose steps end when the test says so.
struct Bench {
  std::function<void()> pending;
  std::optional<StepDone> done;
  FakeModel model;
  FakeEngine engine;

  Bench()
      : engine({.model = model,
                .later = [this](Micros, std::function<void()> task) { pending = std::move(task); },
                .post = [this](Mail mail) { done = *decode_body<StepDone>(mail.body, Limits{}); },
                .duration = [](const Batch&) { return Micros{100}; },
                .watch = {}}) {}

  RowResult run(BatchRow row) {
    engine.submit(Batch{{1}, {std::move(row)}, {}}, {1, 4, 1});
    pending();
    return done->rows.at(0);
  }
};

BatchRow row_of(std::vector<TokenId> tokens, uint32_t position, std::vector<uint32_t> blocks) {
  BatchRow row;
  row.tokens = std::move(tokens);
  row.position = position;
  for (uint32_t block : blocks) row.blocks.push_back({block});
  row.sampling.seed = 11;
  row.sampling.top_logprobs = 0;
  return row;
}

std::vector<TokenId> count_to(TokenId size) {
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < size; ++i) tokens.push_back(i * 7 % 250);
  return tokens;
}

TEST_CASE("a step samples what the pure function says, whole or in chunks") {
  const std::vector<TokenId> prompt = count_to(40);
  Bench whole;
  const FakeSample expected = fake_next_token(whole.model, prompt, 11, 0);
  const RowResult got = whole.run(row_of(prompt, 0, {3, 9, 5}));
  CHECK(got.samples.at(0).token == expected.token);
  CHECK(got.samples.at(0).logprob == expected.logprob);

  Bench chunked;
  BatchRow first = row_of({prompt.begin(), prompt.begin() + 23}, 0, {3, 9, 5});
  first.samples.clear();
  chunked.run(first);
  const RowResult last = chunked.run(row_of({prompt.begin() + 23, prompt.end()}, 23, {3, 9, 5}));
  CHECK(last.samples.at(0).token == expected.token);
  CHECK(last.samples.at(0).logprob == expected.logprob);
}

TEST_CASE("decoding goes on from the blocks, and seeds and choices differ") {
  std::vector<TokenId> sequence = count_to(20);
  Bench bench;
  bench.run(row_of(sequence, 0, {0, 1}));
  for (int i = 0; i < 8; ++i) {
    const TokenId last = fake_next_token(bench.model, sequence, 11, 0).token;
    sequence.push_back(last);
    const auto position = static_cast<uint32_t>(sequence.size() - 1);
    const RowResult got = bench.run(row_of({last}, position, {0, 1}));
    CHECK(got.samples.at(0).token == fake_next_token(bench.model, sequence, 11, 0).token);
  }
  int same = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    same += fake_next_token(bench.model, sequence, seed, 0).token ==
            fake_next_token(bench.model, sequence, seed, 1).token;
  }
  CHECK(same < 5);
}

TEST_CASE("one changed byte, two swapped blocks or a stale block give another token") {
  const std::vector<TokenId> prompt = count_to(48);
  auto next_after = [&](const std::function<void(Bench&)>& harm, std::vector<uint32_t> blocks) {
    Bench bench;
    bench.run(row_of({prompt.begin(), prompt.end() - 1}, 0, {0, 1, 2}));
    harm(bench);
    return bench.run(row_of({prompt.back()}, 47, std::move(blocks))).samples.at(0).logprob;
  };
  const float right = fake_next_token(FakeModel{}, prompt, 11, 0).logprob;
  CHECK(next_after([](Bench&) {}, {0, 1, 2}) == right);
  CHECK(next_after([](Bench& b) { b.engine.block_bytes({1})[77] ^= std::byte{4}; }, {0, 1, 2}) !=
        right);
  CHECK(next_after([](Bench&) {}, {1, 0, 2}) != right);
  CHECK(next_after([](Bench&) {}, {0, 7, 2}) != right);
}

TEST_CASE("prompt log-probabilities are those of each token given the ones before") {
  const std::vector<TokenId> prompt = count_to(6);
  Bench bench;
  BatchRow row = row_of(prompt, 0, {0});
  row.sampling.prompt_logprobs = 1;
  const RowResult got = bench.run(row);
  REQUIRE(got.prompt_logprobs.size() == 5);
  REQUIRE(got.prompt_top.size() == 5);
  uint64_t digest = kFakeStart;
  for (uint32_t i = 0; i + 1 < prompt.size(); ++i) {
    digest = fake_step(bench.model, digest, prompt[i], i);
    CHECK(got.prompt_logprobs[i] == fake_logprob(digest, prompt[i + 1]));
  }
}

TEST_CASE("the engine is busy until its step ends") {
  Bench bench;
  bench.engine.submit(Batch{{4}, {row_of({1}, 0, {0})}}, {1, 4, 1});
  CHECK(bench.engine.busy());
  bench.pending();
  CHECK_FALSE(bench.engine.busy());
  CHECK(bench.done->step == StepId{4});
}

}  // namespace
}  // namespace baton
