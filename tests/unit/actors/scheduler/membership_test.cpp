#include "actors/scheduler/membership.h"

#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr ActorId kPrefill{1, kPrefillSlot, 1};
constexpr ActorId kDecode{2, kDecodeSlot, 1};

Register worker(Role role) {
  Register info;
  info.role = role;
  info.model_hash = 0xabc;
  info.numerics_id = 1;
  info.geometry.layers = 2;
  info.geometry.kv_heads = 3;
  info.geometry.head_dim = 8;
  info.placement = single_rank_placement(info.geometry);
  info.capacity = {role == Role::decode ? 4u : 0u, 100, 1000, 256};
  return info;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<ActorId> overdue(const Membership& members, Micros now) {
  std::vector<ActorId> ids;
  for (const auto& dead : members.overdue(now)) ids.push_back(dead.id);
  return ids;
}

}  // namespace

TEST_CASE("a worker joins once; the same Register again changes nothing") {
  Membership members(Limits{}, 0);
  CHECK(members.join(kPrefill, worker(Role::prefill), 0).outcome == Membership::Join::joined);
  CHECK(members.join(kPrefill, worker(Role::prefill), 9).outcome == Membership::Join::again);
  CHECK(members.live().size() == 1);
  CHECK(members.counters().joined == 1);
}

TEST_CASE("another model is refused, and both hashes are named") {
  Membership first_says(Limits{}, 0);
  REQUIRE(first_says.join(kPrefill, worker(Role::prefill), 0).worker);
  Register other = worker(Role::decode);
  other.model_hash = 0xdef;
  const auto refused = first_says.join(kDecode, other, 0);
  CHECK(refused.outcome == Membership::Join::refused);
  CHECK(refused.refusal.code == ErrorCode::conflict);
  CHECK(contains(refused.refusal.text, "0000000000000abc"));
  CHECK(contains(refused.refusal.text, "0000000000000def"));

  Membership told(Limits{}, 0xdef);
  CHECK(told.join(kDecode, other, 0).outcome == Membership::Join::joined);
  CHECK(told.join(kPrefill, worker(Role::prefill), 0).outcome == Membership::Join::refused);
}

TEST_CASE("T36, T43: other degrees, block sizes and KV dtypes join; a plan is made once") {
  Membership members(Limits{}, 0);
  REQUIRE(members.join(kPrefill, worker(Role::prefill), 0).worker);
  PlacementOptions options;
  options.shape = {2, 3, 8};
  options.query_heads = 9;
  options.tensor_parallel = 4;
  options.pipeline_parallel = 2;
  options.block_tokens = 64;
  options.dtype = KvDtype::f32;
  Register other = worker(Role::decode);
  other.placement = *make_placement(options);
  other.geometry = other.placement.geometry(0);
  const Worker* decode = members.join(kDecode, other, 0).worker;
  REQUIRE(decode);
  CHECK(members.plan_counters().computed == 1);
  CHECK(members.plan(*members.at({1, kPrefillSlot}), *decode).exact);  // bf16 fits into f32
  CHECK(members.join({6, kDecodeSlot, 1}, other, 0).worker);
  CHECK(members.plan_counters().computed == 1);
  CHECK(members.plan_counters().hits == 2);
}

TEST_CASE("T51: a KV layout that no plan can serve is refused when it joins, with a sentence") {
  Membership members(Limits{}, 0);
  REQUIRE(members.join(kPrefill, worker(Role::prefill), 0).worker);
  Register other = worker(Role::decode);
  other.geometry.kv_heads = 5;
  other.placement = single_rank_placement(other.geometry);
  const auto refused = members.join(kDecode, other, 0);
  CHECK(refused.outcome == Membership::Join::refused);
  CHECK(refused.refusal.code == ErrorCode::unsupported);
  CHECK(refused.refusal.text ==
        "no reshard plan with the prefill instance on rank 1: the source's KV cache is 2 layers x "
        "3 kv-heads x 8, the target's 2 layers x 5 kv-heads x 8: load the same model on both");
  // Two of one role never exchange KV.
  Register second = worker(Role::prefill);
  second.geometry.kv_heads = 5;
  second.placement = single_rank_placement(second.geometry);
  CHECK(members.join({5, kPrefillSlot, 1}, second, 0).outcome == Membership::Join::joined);
}

TEST_CASE("T39: a placement that says other than the geometry, or is not sound, is refused") {
  Membership members(Limits{}, 0);
  Register info = worker(Role::decode);
  info.placement.dtype = KvDtype::f16;
  CHECK(contains(members.join(kDecode, info, 0).refusal.text, "first rank of its placement"));
  info = worker(Role::decode);
  info.placement.ranks[0].heads.end = 2;
  CHECK(contains(members.join(kDecode, info, 0).refusal.text,
                 "its KV placement: no rank of the instance owns kv-head 2 of layer 0"));
  info.placement.ranks.clear();
  CHECK(members.join(kDecode, info, 0).outcome == Membership::Join::refused);
}

TEST_CASE("a capacity of nothing is refused") {
  Membership members(Limits{}, 0);
  Register info = worker(Role::decode);
  info.capacity.slots = 0;
  CHECK(members.join(kDecode, info, 0).refusal.code == ErrorCode::invalid_argument);
  info = worker(Role::decode);
  info.capacity.blocks = 0;
  CHECK(members.join(kDecode, info, 0).outcome == Membership::Join::refused);
  info = worker(Role::decode);
  info.geometry.block_tokens = 0;
  CHECK(members.join(kDecode, info, 0).outcome == Membership::Join::refused);
  info = worker(Role::decode);
  info.geometry.layers = 0;
  CHECK(members.join(kDecode, info, 0).outcome == Membership::Join::refused);
}

TEST_CASE("silence for more than the missed beats is death, of that worker alone") {
  Limits limits;
  Membership members(limits, 0);
  members.join(kPrefill, worker(Role::prefill), 0);
  members.join(kDecode, worker(Role::decode), 0);
  const Micros patience = limits.beats_missed_max * limits.beat_period_us;
  CHECK(members.hear(kDecode, 100) != nullptr);
  CHECK(overdue(members, patience).empty());
  CHECK(overdue(members, patience + 1) == std::vector<ActorId>{kPrefill});
  CHECK(overdue(members, patience + 101) == std::vector<ActorId>{kPrefill, kDecode});
}

TEST_CASE("a worker that does not hear the scheduler is dead even though it is heard") {
  Limits limits;
  Membership members(limits, 0);
  Worker& deaf = *members.join(kDecode, worker(Role::decode), 0).worker;
  Micros now = 0;
  Beat beat;
  for (beat.seq = 1; beat.seq <= 20; ++beat.seq) {
    now += limits.beat_period_us;
    members.hear(kDecode, now);
    beat.echo = beat.seq > 10 ? 9 : beat.seq - 1;
    members.beat(deaf, beat);
    members.acknowledged(deaf, beat.seq, now);
    const bool late = beat.seq > 10 + static_cast<uint64_t>(limits.beats_missed_max);
    CHECK(overdue(members, now).empty() == !late);
  }
}

TEST_CASE("a broken link is death after the probe, unless mail or a new link comes") {
  Limits limits;
  Membership members(limits, 0);
  members.join(kPrefill, worker(Role::prefill), 0);
  members.join(kDecode, worker(Role::decode), 0);
  members.suspect(kDecode.rank, 1000);
  CHECK(overdue(members, 1000 + limits.probe_us - 1).empty());
  CHECK(overdue(members, 1000 + limits.probe_us) == std::vector<ActorId>{kDecode});
  members.hear(kDecode, 1100);
  CHECK(overdue(members, 1000 + limits.probe_us).empty());
  members.suspect(kDecode.rank, 2000);
  members.trust(kDecode.rank);
  CHECK(overdue(members, 2000 + limits.probe_us).empty());
}

TEST_CASE("a life that was buried is fenced, and every earlier one; the next is not") {
  Membership members(Limits{}, 0);
  const ActorId third{2, kDecodeSlot, 3};
  members.join(third, worker(Role::decode), 0);
  members.find(third)->requests.insert({5});
  const Worker buried = members.bury(third);
  CHECK(buried.requests.size() == 1);
  CHECK(members.fenced(third));
  CHECK(members.fenced(kDecode));
  CHECK_FALSE(members.fenced({2, kDecodeSlot, 4}));
  CHECK_FALSE(members.fenced({2, kPrefillSlot, 1}));
  CHECK(members.hear(third, 0) == nullptr);
  CHECK(members.dead().size() == 1);
  members.join({2, kDecodeSlot, 4}, worker(Role::decode), 0);
  CHECK(members.dead().empty());
}

TEST_CASE("after a pause of the scheduler all ages start again") {
  Limits limits;
  Membership members(limits, 0);
  Worker& one = *members.join(kDecode, worker(Role::decode), 0).worker;
  members.acknowledged(one, 1, 0);
  members.suspect(kDecode.rank, 0);
  const Micros now = 100 * kSecond;
  members.restart_ages(now);
  CHECK(overdue(members, now + limits.probe_us - 1).empty());
  CHECK(overdue(members, now + limits.probe_us) == std::vector<ActorId>{kDecode});
}

TEST_CASE("T22: after one failure a worker is probed, after more it pauses, success forgives all") {
  Membership members(Limits{}, 0);
  Worker& one = *members.join(kDecode, worker(Role::decode), 0).worker;
  CHECK(members.open(one, 0));
  members.note_failure(one, 0);
  CHECK(members.open(one, 0));
  one.arriving = 1;  // the probe is under way
  CHECK_FALSE(members.open(one, 0));
  one.arriving = 0;
  members.note_failure(one, 0);
  CHECK_FALSE(members.open(one, 0));
  CHECK(members.open(one, 100 * kMillisecond));
  for (int i = 0; i < 30; ++i) members.note_failure(one, 0);
  CHECK_FALSE(members.open(one, 10 * kSecond - 1));
  CHECK(members.open(one, 10 * kSecond));
  members.note_success(one);
  CHECK(members.open(one, 0));
}

TEST_CASE("a sequence is bounded by the context and by the pool") {
  Worker one;
  one.info = worker(Role::decode);
  one.info.capacity.context_max = 1000;
  one.info.capacity.blocks = 100;
  CHECK(one.positions_max() == 1000);
  one.info.capacity.blocks = 10;
  CHECK(one.positions_max() == 160);
}
