#include "actors/scheduler/pairs.h"

#include "tests/unit/actors/scheduler/cluster.h"

namespace baton::test {
namespace {

Plan plan_for(uint32_t tensor) {
  PlacementOptions options;
  options.shape = {2, 2, 8};
  options.query_heads = 4;
  const Placement whole = *make_placement(options);
  options.tensor_parallel = tensor;
  return *plan_reshard(whole, *make_placement(options));
}

Connected yes(const Pairs::Question& question) {
  return {question.message.pair, question.message.plan.digest};
}

}  // namespace

TEST_CASE("a pair is agreed on when both ends have said so, in any order, and once") {
  Pairs pairs;
  pairs.set_terms({2, 1024, true});
  pairs.add(kP1, kD1, false, plan_for(2), 0);
  const auto questions = pairs.questions(kD1);
  REQUIRE(questions.size() == 2);
  CHECK(questions[0].to == kP1);
  CHECK(questions[0].message.direction == KvDirection::send);
  CHECK(questions[0].message.peer == kD1);
  CHECK(questions[1].to == kD1);
  CHECK(questions[1].message.direction == KvDirection::receive);
  CHECK(questions[1].message.terms == PairTerms{2, 1024, true});
  CHECK(pairs.questions(kP1).empty());
  CHECK_FALSE(pairs.ready(kD1));
  CHECK(pairs.ready(kP1));                                // it was there before and goes on
  CHECK(pairs.agree(kD2, yes(questions[0])) == nullptr);  // none of its ends
  CHECK(pairs.agree(kD1, {questions[0].message.pair, {12345}}) == nullptr);  // of another plan
  CHECK(pairs.agree(kD1, yes(questions[1])) != nullptr);
  CHECK(pairs.agree(kD1, yes(questions[1])) != nullptr);
  CHECK_FALSE(pairs.ready(kD1));
  CHECK(pairs.agree(kP1, yes(questions[0])) != nullptr);
  CHECK(pairs.ready(kD1));
  CHECK(pairs.counters().connected == 1);
  CHECK(pairs.plan(worker_key(kP1), worker_key(kD1)).plan.digest ==
        questions[0].message.plan.digest);
}

TEST_CASE("a newcomer waits for all its pairs; a peer's end is as good as its answer") {
  Pairs pairs;
  pairs.set_terms({1, 1024, true});
  pairs.add(kP1, kD1, true, plan_for(1), 0);
  pairs.add(kP1, kD2, true, plan_for(2), 0);
  for (const Pairs::Question& question : pairs.questions(kP1)) {
    if (question.message.peer == kD2 || question.to == kD2) continue;
    pairs.agree(question.to, yes(question));
  }
  CHECK_FALSE(pairs.ready(kP1));
  CHECK(pairs.open() == 1);
  CHECK(pairs.leave(kD2) == std::vector<ActorId>{kP1});
  CHECK(pairs.ready(kP1));
  CHECK(pairs.open() == 0);
}

TEST_CASE("T23: a question without an answer is asked again, of those who have not answered") {
  Pairs pairs;
  pairs.set_terms({1, 1024, true});
  pairs.add(kP1, kD1, true, plan_for(1), 100);
  const auto questions = pairs.questions(kP1);
  pairs.agree(kP1, yes(questions[0]));
  CHECK(pairs.overdue(100 + kSecond / 2).empty());
  const auto again = pairs.overdue(100 + kSecond);
  REQUIRE(again.size() == 1);
  CHECK(again[0].to == kD1);
  CHECK(pairs.overdue(100 + kSecond).empty());
  CHECK(pairs.overdue(100 + 2 * kSecond).size() == 1);
}

TEST_CASE("T29: no work for a worker before its pairs have agreed") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  cluster.admit(1);  // nobody decodes yet
  CHECK(cluster.context.take<AdmitRefused>());
  cluster.deliver(kD1, Cluster::registration(Role::decode, 4, 64));
  REQUIRE(cluster.context.take<Welcome>(kD1));
  cluster.alive.insert(kD1);
  const auto to_prefill = cluster.context.expect<Connect>(kP1).message;
  const auto to_decode = cluster.context.expect<Connect>(kD1).message;
  CHECK(to_prefill.pair == to_decode.pair);
  cluster.admit(2);
  CHECK(cluster.context.take<AdmitRefused>());
  CHECK_FALSE(cluster.context.take<Reserve>());
  cluster.deliver(kP1, Connected{to_prefill.pair, to_prefill.plan.digest});
  cluster.deliver(kD1, Connected{to_decode.pair, to_decode.plan.digest});
  cluster.admitted(3);
  const Cluster::Life life = cluster.reserving();
  CHECK(cluster.last_reserve.plan == to_decode.plan.digest);
  CHECK(life.target == kD1);
  CHECK(cluster.scheduler.pairs().counters().connected == 1);
}

TEST_CASE("a newcomer whose only silent peer dies is given work") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1);
  cluster.deliver(kP2, Cluster::registration(Role::prefill, 0, 64));
  cluster.alive.insert(kP2);
  const auto asked = cluster.context.expect<Connect>(kP2).message;
  cluster.deliver(kP2, Connected{asked.pair, asked.plan.digest});
  cluster.alive.erase(kD1);  // frozen: it never answers
  cluster.pass(4 * kSecond);
  CHECK(cluster.scheduler.members().live().size() == 2);
  CHECK(cluster.scheduler.pairs().ready(kP2));
  cluster.join_decode(kD2);
  cluster.alive.erase(kP1);
  cluster.pass(4 * kSecond);
  cluster.admitted(1);
  CHECK(cluster.reserving().source == kP2);
}

TEST_CASE("T39: a worker that computes another plan gets no work, and others go on") {
  Cluster cluster;
  cluster.form();
  cluster.deliver(kD2, Cluster::registration(Role::decode, 4, 64));
  cluster.alive.insert(kD2);
  const auto asked = cluster.context.expect<Connect>(kD2).message;
  cluster.deliver(kD2, ConnectFailed{asked.pair, {ErrorCode::conflict, "another plan", 0}});
  for (uint64_t id = 1; id <= 5; ++id) cluster.admitted(id);
  for (int i = 0; i < 4; ++i) CHECK(cluster.reserving().target == kD1);
  CHECK_FALSE(cluster.context.take<Reserve>());
  CHECK(cluster.scheduler.pairs().counters().failed == 1);
}

TEST_CASE("T51: where only an instance that no plan serves asks to join, clients hear an error") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  Register other = Cluster::registration(Role::decode, 4, 64);
  other.geometry.head_dim = 16;
  other.placement = single_rank_placement(other.geometry);
  cluster.deliver(kD1, other);
  CHECK(cluster.context.expect<Refused>(kD1).message.refusal.text ==
        "no reshard plan with the prefill instance on rank 1: the source's KV cache is 2 layers x "
        "1 kv-heads x 8, the target's 2 layers x 1 kv-heads x 16: load the same model on both");
  cluster.admit(1);
  CHECK(cluster.context.expect<AdmitRefused>().message.refusal.code == ErrorCode::unavailable);
}

}  // namespace baton::test
