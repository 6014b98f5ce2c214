#include "runtime/layout/plan.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "tests/unit/layout/random_placement.h"

using namespace baton;

namespace {

Placement parallel(uint32_t tensor, uint32_t pipeline = 1, KvShape shape = {4, 8, 64},
                   uint32_t query_heads = 32) {
  PlacementOptions o;
  o.shape = shape;
  o.query_heads = query_heads;
  o.tensor_parallel = tensor;
  o.pipeline_parallel = pipeline;
  return *make_placement(o);
}

// Element by element: who brings (layer, head) to each target rank, and does it have it?
void check_against_oracle(const Plan& plan) {
  int wrong = 0;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, int> brought;  // target rank, layer, head
  for (const Segment& s : plan.segments) {
    REQUIRE(s.source_rank < plan.source.ranks.size());
    REQUIRE(s.target_rank < plan.target.ranks.size());
    for (uint32_t layer = s.layers.begin; layer < s.layers.end; ++layer) {
      for (uint32_t head = s.heads.begin; head < s.heads.end; ++head) {
        ++brought[{s.target_rank, layer, head}];
        const Box& has = plan.source.ranks[s.source_rank];
        if (!has.layers.contains(layer) || !has.heads.contains(head)) ++wrong;
      }
    }
  }
  size_t owned = 0;
  for (uint32_t rank = 0; rank < plan.target.ranks.size(); ++rank) {
    const Box& box = plan.target.ranks[rank];
    for (uint32_t layer = box.layers.begin; layer < box.layers.end; ++layer) {
      for (uint32_t head = box.heads.begin; head < box.heads.end; ++head, ++owned) {
        if (brought[{rank, layer, head}] != 1) ++wrong;
      }
    }
  }
  CHECK(wrong == 0);
  CHECK(brought.size() == owned);
}

// A target rank is cut at most at each source rank's layer bounds, and each band needs a source
// rank at most once.
size_t segments_bound(const Plan& plan) {
  size_t bound = 0;
  for (const Box& target : plan.target.ranks) {
    std::set<uint32_t> cuts = {target.layers.begin};
    for (const Box& source : plan.source.ranks) {
      for (uint32_t at : {source.layers.begin, source.layers.end}) {
        if (at > target.layers.begin && at < target.layers.end) cuts.insert(at);
      }
    }
    bound += cuts.size() * std::min<size_t>(plan.source.ranks.size(), target.heads.size());
  }
  return bound;
}

}  // namespace

TEST_CASE("10,000 random plans bring every element that a target owns exactly once") {
  test::PlacementMaker make(1);
  for (int i = 0; i < 10'000; ++i) {
    CAPTURE(i);
    const KvShape shape = make.shape();
    const Placement source = make.placement(shape, KvDtype::bf16);
    const Placement target = make.placement(shape, KvDtype::bf16);
    const Result<Plan> plan = plan_reshard(source, target);
    REQUIRE(plan.ok());
    check_against_oracle(*plan);
    CHECK(plan->segments.size() <= segments_bound(*plan));
    CHECK(plan->exact);
  }
}

TEST_CASE("a plan between equal placements is the identity: whole blocks, rank to same rank") {
  test::PlacementMaker make(2);
  for (int i = 0; i < 500; ++i) {
    CAPTURE(i);
    const Placement p = make.placement(make.shape(), KvDtype::bf16);
    const Result<Plan> plan = plan_reshard(p, p);
    REQUIRE(plan.ok());
    CHECK(plan->whole_blocks());
    for (uint32_t rank = 0; rank < plan->segments.size(); ++rank) {
      CHECK(plan->segments[rank].source_rank == rank);
      CHECK(plan->segments[rank].target_rank == rank);
    }
  }
}

TEST_CASE("a plan's digest names its content") {
  const Plan a = *plan_reshard(parallel(1), parallel(2));
  const Plan b = *plan_reshard(parallel(1), parallel(2));
  const Plan c = *plan_reshard(parallel(2), parallel(1));
  Placement wide = parallel(2);
  wide.block_tokens = 32;
  const Plan d = *plan_reshard(parallel(1), wide);
  CHECK(a.digest == b.digest);
  CHECK(a.segments == b.segments);
  CHECK(a.digest != c.digest);
  CHECK(a.digest != d.digest);
  CHECK(d.segments[0].conversion == Conversion::reblock);
}

TEST_CASE("replicas share the work of sending") {
  // 16 ranks hold 8 kv-heads twice; each of 8 targets takes one head.
  const Plan plan = *plan_reshard(parallel(16), parallel(8));
  std::map<uint32_t, int> sends;
  for (const Segment& s : plan.segments) ++sends[s.source_rank];
  CHECK(plan.segments.size() == 8);
  for (auto [rank, count] : sends) CHECK(count == 1);
  // Two replicas of everything, four targets: two each.
  Placement twice = parallel(1);
  twice.ranks.push_back(twice.ranks[0]);
  Placement quarters = parallel(4);
  sends.clear();
  const Plan shared = *plan_reshard(twice, quarters);
  for (const Segment& s : shared.segments) ++sends[s.source_rank];
  CHECK(sends[0] == 2);
  CHECK(sends[1] == 2);
}

TEST_CASE("query heads are split for any degree, and kv-heads cover them") {
  for (uint32_t ranks : {1u, 2u, 4u, 8u, 9u}) {
    const Placement p = parallel(ranks, 1, {30, 3, 64}, 9);
    REQUIRE(p.ranks.size() == ranks);
    uint32_t next = 0;
    for (uint32_t r = 0; r < ranks; ++r) {
      const Range queries = query_heads_of(9, ranks, r);
      CHECK(queries.begin == next);
      CHECK(queries.size() >= 1);
      next = queries.end;
      for (uint32_t q = queries.begin; q < queries.end; ++q) {
        CHECK(p.ranks[r].heads.contains(q / 3));
      }
    }
    CHECK(next == 9);
  }
  const Placement four = parallel(4, 1, {30, 3, 64}, 9);
  CHECK(four.ranks[1].heads == Range{0, 2});  // query heads 2 and 3
}

TEST_CASE("placements that cannot be are refused with a sentence") {
  auto text = [](const PlacementOptions& o) { return make_placement(o).error().text; };
  PlacementOptions o;
  o.shape = {30, 3, 64};
  o.query_heads = 9;
  o.tensor_parallel = 10;
  CHECK(text(o) == "tensor-parallel degree 10 is outside 1 to the 9 query heads of the model");
  o.tensor_parallel = 2;
  o.pipeline_parallel = 31;
  CHECK(text(o) == "pipeline-parallel degree 31 is outside 1 to the 30 layers of the model");
  o.pipeline_parallel = 1;
  o.query_heads = 10;
  CHECK(text(o) == "10 query heads cannot share 3 kv-heads evenly");
  o.query_heads = 9;
  o.block_tokens = 24;
  CHECK(text(o) == "blocks of 24 tokens do not exist; use 16, 32 or 64");

  Placement hole = parallel(4);
  hole.ranks.erase(hole.ranks.begin() + 1);
  CHECK(check_placement(hole).error().text == "no rank of the instance owns kv-head 2 of layer 0");
  Placement outside = parallel(2);
  outside.ranks[1].layers.end = 9;
  CHECK(plan_reshard(outside, parallel(1)).error().text ==
        "source placement: rank 1 of the instance owns layers [0, 9) and kv-heads [4, 8), which is "
        "not a part of 4 layers x 8 kv-heads");
}

TEST_CASE("plans are cached by pair and found by digest") {
  PlanCache cache(2);
  const Plan* first = *cache.plan(parallel(1), parallel(2));
  CHECK(*cache.plan(parallel(1), parallel(2)) == first);
  CHECK(cache.find(first->digest) == first);
  CHECK(cache.find(PlanDigest{first->digest.value + 1}) == nullptr);
  CHECK(cache.plan(parallel(2), parallel(1)).ok());
  CHECK(cache.size() == 2);
  CHECK(cache.plan(parallel(4), parallel(1)).error().code == ErrorCode::busy);
  CHECK(*cache.plan(parallel(1), parallel(2)) == first);
  CHECK(cache.counters().computed == 2);
  CHECK(cache.counters().hits == 2);
}

TEST_CASE("T39: a plan that comes from elsewhere is compared with one's own") {
  Plan plan = *plan_reshard(parallel(2), parallel(4));
  CHECK(check_plan(plan).ok());
  std::swap(plan.segments[0].source_rank, plan.segments[3].source_rank);
  CHECK(check_plan(plan).error().code == ErrorCode::conflict);
  Plan renamed = *plan_reshard(parallel(2), parallel(4));
  ++renamed.digest.value;
  CHECK_FALSE(check_plan(renamed).ok());
  Plan hole = *plan_reshard(parallel(2), parallel(4));
  hole.target.ranks.pop_back();
  CHECK_FALSE(check_plan(hole).ok());
}

TEST_CASE("T36: prefill on 1 rank and decode on 2 has a plan, and another model a refusal") {
  const Plan plan = *plan_reshard(parallel(1), parallel(2));
  CHECK(plan.segments.size() == 2);
  CHECK(plan.segments[1].heads == Range{4, 8});
  CHECK_FALSE(plan.whole_blocks());
  CHECK(describe_plan(plan) == "1 rank to 2");
  const Placement other = parallel(2, 1, {5, 8, 64});
  const Result<Plan> refused = plan_reshard(parallel(1), other);
  CHECK(refused.error().code == ErrorCode::unsupported);
  CHECK(refused.error().text ==
        "the source's KV cache is 4 layers x 8 kv-heads x 64, the target's 5 layers x 8 kv-heads x "
        "64: load the same model on both");
}

TEST_CASE("T37: 8 ranks to 16 with 8 kv-heads goes by the heads owned, not by the ratio of ranks") {
  const Plan plan = *plan_reshard(parallel(8), parallel(16));
  REQUIRE(plan.segments.size() == 16);
  for (const Segment& s : plan.segments) {
    CHECK(s.source_rank == s.target_rank / 2);
    CHECK(s.heads == Range{s.target_rank / 2, s.target_rank / 2 + 1});
  }
  check_against_oracle(plan);
}

TEST_CASE("T38: replicated heads have one source each, inside what the source owns") {
  const Plan plan = *plan_reshard(parallel(16), parallel(32));
  check_against_oracle(plan);
  std::map<uint32_t, int> sends;
  for (const Segment& s : plan.segments) ++sends[s.source_rank];
  CHECK(sends.size() == 16);
  for (auto [rank, count] : sends) CHECK(count == 2);
}

TEST_CASE("T39: the stored form is part of a placement and checked, never assumed") {
  Placement unknown = parallel(2);
  unknown.inner = static_cast<InnerLayout>(7);
  CHECK(plan_reshard(parallel(2), unknown).error().text ==
        "target placement: unknown KV dtype or inner layout (1, 7): run the same version of Baton "
        "on every rank");
  Placement wide = parallel(2);
  wide.block_tokens = 64;
  CHECK(describe_plan(*plan_reshard(parallel(2), wide)) ==
        "2 ranks to 2, blocks of 16 to 64 tokens");
}

TEST_CASE("T41: pipeline stages pair layers by number, not by position") {
  const Plan plan = *plan_reshard(parallel(1, 2), parallel(1, 1));
  REQUIRE(plan.segments.size() == 2);
  CHECK(plan.segments[0] == Segment{0, 0, {0, 2}, {0, 8}, Conversion::copy});
  CHECK(plan.segments[1] == Segment{1, 0, {2, 4}, {0, 8}, Conversion::copy});
  const Plan back = *plan_reshard(parallel(1, 4), parallel(1, 2));
  CHECK(back.segments[3] == Segment{3, 1, {3, 4}, {0, 8}, Conversion::copy});
  check_against_oracle(back);
}

TEST_CASE("T43: another KV dtype is a conversion that says whether it rounds") {
  Placement f32 = parallel(1);
  f32.dtype = KvDtype::f32;
  Placement f16 = parallel(1);
  f16.dtype = KvDtype::f16;
  const Plan rounds = *plan_reshard(f32, parallel(1));
  CHECK_FALSE(rounds.exact);
  CHECK(rounds.segments[0].conversion == Conversion::convert);
  CHECK(plan_reshard(parallel(1), f32)->exact);
  CHECK(plan_reshard(f16, f32)->exact);
  CHECK_FALSE(plan_reshard(parallel(1), f16)->exact);
  CHECK_FALSE(plan_reshard(f16, parallel(1))->exact);
  CHECK(describe_plan(rounds) == "1 rank to 1, f32 to bf16 (rounds)");
}
