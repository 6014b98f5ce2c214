// Prefix caches, local prefill and tiny pools in a whole cluster, without chance faults.

#include <algorithm>
#include <memory>

#include "tests/sim/quiet_cluster.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

// A cluster, and one client after the other or all at once, whose answers are known.
struct Hall : QuietCluster {
  explicit Hall(const SwarmPlan& wanted) : QuietCluster(11, wanted) {}

  // `common` positions as everybody has them, then `own` that only this client has.
  SimClient& submit(uint32_t common, uint32_t own, uint32_t tokens) {
    Submit submit;
    submit.job = 1;
    for (uint32_t i = 0; i < common; ++i) submit.ids.push_back(static_cast<TokenId>(i * 7 % 256));
    const auto number = static_cast<uint32_t>(clients.size() + 1);
    for (uint32_t i = 0; i < own; ++i) {
      submit.ids.push_back(static_cast<TokenId>((number * 31 + i) % 256));
    }
    submit.has_max_tokens = true;
    submit.max_tokens = tokens;
    submit.ignore_eos = true;
    submit.has_seed = true;
    submit.sampling.seed = number;
    submit.sampling.top_logprobs = 0;
    return start(std::move(submit));
  }
  void finish() {
    REQUIRE(all_finished(300 * kSecond));
    for (const auto& client : clients) {
      const JobRecord& job = client->jobs().at(1);
      CAPTURE(job.submit.sampling.seed);
      CHECK(job.end == JobEnd::done);
      const ExpectedStream right = expected(job);
      CHECK(job.streams.at(0).ids == right.ids);
      CHECK(job.streams.at(0).logprobs == right.logprobs);
    }
    CHECK(at_rest());
  }
  const SchedulerCounters& counted() const { return cluster->scheduler()->counters(); }
};

SwarmPlan plan_of(uint32_t prefill_ranks, uint32_t decode_ranks) {
  SwarmPlan plan;
  plan.prefill_ranks = prefill_ranks;
  plan.decode_ranks = decode_ranks;
  plan.limits.decode_slots = 6;
  return plan;
}

}  // namespace

TEST_CASE(
    "T76, T77, T79, T80: storms: many sequences in pools that hold hardly one all end right") {
  using Mode = LocalPrefillPolicy::Mode;
  for (const Mode mode : {Mode::off, Mode::fixed, Mode::automatic}) {
    SwarmPlan plan = plan_of(1, 2);
    plan.decode_blocks = plan.prefill_blocks = plan.context_max / 16 + 1;
    plan.local_prefill = {mode, 40};
    Hall hall(plan);
    for (uint32_t i = 0; i < 40; ++i) hall.submit(i % 3 * 16, 5 + i % 11, 60 + i % 20);
    hall.finish();
    CHECK(hall.counted().preemptions > 20);
    CHECK(hall.counted().failed == 0);
  }
}

TEST_CASE("T47, T50: hundreds of prompts that begin alike: hits on both sides, no stream differs") {
  SwarmPlan plan = plan_of(2, 2);
  plan.chunking = true;
  plan.step_tokens_max = 48;
  Hall hall(plan);
  for (uint32_t i = 0; i < 200; ++i) hall.submit(i % 7 * 11, 1 + i % 9, 1 + i % 20);
  hall.finish();
  uint64_t prefill_hits = 0;
  uint64_t decode_hits = 0;
  for (const uint32_t rank : hall.cluster->prefill_ranks()) {
    prefill_hits += hall.cluster->prefill(rank)->counters().cache_hit;
  }
  for (const uint32_t rank : hall.cluster->decode_ranks()) {
    decode_hits += hall.cluster->decode(rank)->counters().cache_hit;
  }
  CHECK(prefill_hits > 1000);
  CHECK(decode_hits > 1000);
  CHECK(hall.counted().migrations == 0);
}

TEST_CASE("the death of the rank that has a prefix loses the prefix and nothing else") {
  Hall hall(plan_of(1, 2));
  for (uint32_t i = 0; i < 6; ++i) hall.submit(64, 3, 40);
  REQUIRE(hall.world().run_until(
      [&] {
        const Decode* decode = hall.cluster->decode(hall.cluster->decode_ranks()[0]);
        return decode && decode->running() > 0 && decode->blocks_cached() > 0;
      },
      30 * kSecond));
  hall.world().crash(hall.cluster->decode_ranks()[0]);
  for (uint32_t i = 0; i < 6; ++i) hall.submit(64, 3, 40);
  hall.world().at(3 * kSecond, [&] { hall.world().restart(hall.cluster->decode_ranks()[0]); });
  hall.finish();
  CHECK(hall.counted().migrations > 0);
}

TEST_CASE("T20, T81: without a prefill rank the decode ranks serve alone, where that is allowed") {
  SwarmPlan plan = plan_of(1, 1);
  plan.local_prefill = {LocalPrefillPolicy::Mode::automatic, 0};
  Hall hall(plan);
  hall.submit(40, 5, 10);
  hall.world().advance(kSecond);
  hall.world().crash(hall.cluster->prefill_ranks()[0]);
  hall.world().advance(5 * kSecond);
  for (uint32_t i = 0; i < 8; ++i) hall.submit(40, 5, 20);
  REQUIRE(hall.world().run_until(
      [&] {
        return std::all_of(hall.clients.begin(), hall.clients.end(),
                           [](const auto& client) { return client->finished(); });
      },
      60 * kSecond));
  CHECK(hall.counted().local_prefills == 8);
  hall.world().restart(hall.cluster->prefill_ranks()[0]);
  hall.finish();
}

}  // namespace baton
