#include <memory>
#include <string>
#include <vector>

#include "tests/sim/quiet_cluster.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

// Clusters whose two sides hold KV in different ways, without chance faults: every answer must be
// what the fake model says, which reads all heads and layers of all ranks.
struct Pairing {
  std::vector<SwarmLayout> prefill;
  std::vector<SwarmLayout> decode;
  uint32_t jobs = 6;
  uint32_t layer_groups = 1;
  size_t piece_bytes_max = 4096;
};

struct Outcome {
  uint32_t right = 0;
  bool exact = true;    // of all answers
  bool inexact = true;  // no answer said that it is exact
  bool rested = false;
  uint64_t plans_computed = 0;
  uint64_t plans_cached = 0;
};

Submit job_of(uint32_t number) {
  Submit submit;
  submit.job = 1;
  const uint32_t prompt = 1 + number * 29 % 77;  // block boundaries and what is around them
  for (uint32_t i = 0; i < prompt; ++i) {
    submit.ids.push_back(static_cast<TokenId>((number * 31 + i * 7) % 250));
  }
  submit.n = number % 3 == 0 ? 2 : 1;
  submit.has_max_tokens = true;
  submit.max_tokens = 2 + number % 23;
  submit.ignore_eos = true;
  submit.has_seed = true;
  submit.sampling.seed = 1000 + number;
  submit.sampling.top_logprobs = 0;
  return submit;
}

Outcome run(const Pairing& pairing) {
  SwarmPlan plan;
  plan.prefill_ranks = static_cast<uint32_t>(pairing.prefill.size());
  plan.decode_ranks = static_cast<uint32_t>(pairing.decode.size());
  plan.prefill_layouts = pairing.prefill;
  plan.decode_layouts = pairing.decode;
  plan.limits.piece_bytes_max = pairing.piece_bytes_max;
  plan.limits.kv_layer_groups = pairing.layer_groups;
  plan.limits.decode_slots = 6;
  QuietCluster quiet(11, plan);
  for (uint32_t i = 0; i < pairing.jobs; ++i) quiet.start(job_of(i));
  Outcome outcome;
  CHECK(quiet.all_finished(120 * kSecond));
  for (const auto& client : quiet.clients) {
    const JobRecord& job = client->jobs().at(1);
    const ExpectedStream expected = quiet.expected(job);
    const StreamRecord& got = job.streams.at(0);
    outcome.right +=
        job.end == JobEnd::done && got.ids == expected.ids && got.logprobs == expected.logprobs;
    outcome.exact = outcome.exact && job.done.usage.exact;
    outcome.inexact = outcome.inexact && !job.done.usage.exact;
  }
  outcome.rested = quiet.at_rest();
  outcome.plans_computed = quiet.cluster->scheduler()->members().plan_counters().computed;
  outcome.plans_cached = quiet.cluster->scheduler()->members().plan_counters().hits;
  return outcome;
}

SwarmLayout layout(uint32_t tensor, uint32_t pipeline = 1, uint32_t block_tokens = 16,
                   KvDtype dtype = KvDtype::f32) {
  return {tensor, pipeline, block_tokens, dtype};
}

TEST_CASE(
    "T36, T37, T38: every pairing of tensor-parallel degrees, with more ranks than kv-heads") {
  for (uint32_t source = 1; source <= 4; ++source) {
    for (uint32_t target = 1; target <= 4; ++target) {
      CAPTURE(source);
      CAPTURE(target);
      const Outcome outcome = run({{layout(source)}, {layout(target)}});
      CHECK(outcome.right == 6);
      CHECK(outcome.exact);
      CHECK(outcome.rested);
    }
  }
}

TEST_CASE("T41: pipeline stages on either side, and both kinds at once") {
  for (uint32_t source = 1; source <= 3; ++source) {
    for (uint32_t target = 1; target <= 3; ++target) {
      CAPTURE(source);
      CAPTURE(target);
      CHECK(run({{layout(1, source)}, {layout(1, target)}}).right == 6);
      CHECK(run({{layout(2, source)}, {layout(3, target)}}).right == 6);
    }
  }
}

TEST_CASE(
    "T44: blocks of 16, 32 and 64 tokens on either side, with prompts around the boundaries") {
  for (const uint32_t source : {16u, 32u, 64u}) {
    for (const uint32_t target : {16u, 32u, 64u}) {
      CAPTURE(source);
      CAPTURE(target);
      Pairing pairing{{layout(1, 1, source)}, {layout(1, 1, target)}};
      pairing.jobs = 20;
      CHECK(run(pairing).right == 20);
      pairing.layer_groups = 3;
      pairing.piece_bytes_max = 1;  // a block at a time
      CHECK(run(pairing).right == 20);
    }
  }
}

TEST_CASE("T43: another KV dtype is converted, and results say whether bits may have been lost") {
  for (const KvDtype source : {KvDtype::f32, KvDtype::bf16, KvDtype::f16}) {
    for (const KvDtype target : {KvDtype::f32, KvDtype::bf16, KvDtype::f16}) {
      CAPTURE(dtype_name(source));
      CAPTURE(dtype_name(target));
      const Outcome outcome = run({{layout(2, 1, 16, source)}, {layout(3, 1, 32, target)}});
      CHECK(outcome.right == 6);
      CHECK(outcome.exact == conversion_exact(source, target));
      CHECK(outcome.inexact == !conversion_exact(source, target));
    }
  }
}

TEST_CASE("T49: 300 requests through instances of many layouts give the right tokens to the end") {
  Pairing pairing{{layout(1), layout(3, 2, 64, KvDtype::f32)},
                  {layout(4, 1, 32, KvDtype::bf16), layout(2, 3, 64, KvDtype::f16), layout(1)}};
  pairing.jobs = 300;
  pairing.layer_groups = 2;
  const Outcome outcome = run(pairing);
  CHECK(outcome.right == 300);
  CHECK(outcome.rested);
}

TEST_CASE("a plan is computed once per pair of placements, however many requests use it") {
  Pairing pairing{{layout(2), layout(2), layout(2)}, {layout(3), layout(3)}};
  pairing.jobs = 40;
  const Outcome outcome = run(pairing);
  CHECK(outcome.right == 40);
  CHECK(outcome.plans_computed == 1);
  // Six pairs: looked at when the second of the two was checked, and when both were asked.
  CHECK(outcome.plans_cached == 11);
}

}  // namespace
}  // namespace baton
