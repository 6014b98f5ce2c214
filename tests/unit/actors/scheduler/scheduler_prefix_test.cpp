// Prefix caches and local prefill as the scheduler sees them.

#include "tests/unit/actors/scheduler/cluster.h"

#include <doctest/doctest.h>

namespace baton::test {
namespace {

SchedulerOptions with_local(LocalPrefillPolicy::Mode mode, uint32_t tokens = 0) {
  SchedulerOptions options = default_options();
  options.local_prefill = {mode, tokens};
  return options;
}

Admit of_tenant(const std::string& tenant, size_t prompt = 40) {
  Admit admit = Cluster::ask(prompt);
  admit.tenant = tenant;
  return admit;
}

// As far as Start.
Cluster::Life start(Cluster& cluster, uint64_t id, const Admit& what = Cluster::ask()) {
  cluster.admitted(id, what);
  Cluster::Life life = cluster.reserving();
  cluster.reserved(life, 0, true);
  const auto sent = cluster.context.expect<Start>(life.target);
  CHECK(sent.message.transfer == life.transfer);
  CHECK(sent.message.ids == what.ids);
  CHECK(sent.message.gateway == kGateway);
  CHECK_FALSE(cluster.context.take<Run>());
  CHECK(cluster.state_of(id) == RequestState::transfer);
  return life;
}

}  // namespace

TEST_CASE("blocks have the same names for the same prompt of one tenant, and others for another") {
  Cluster cluster;
  cluster.form();
  cluster.reach(RequestState::reserving, 1, of_tenant("a"));
  const PrefixNames first = cluster.last_reserve.prefix;
  CHECK(first.named());
  CHECK(first.blocks.size() == 2);
  cluster.reach(RequestState::reserving, 2, of_tenant("a"));
  CHECK(cluster.last_reserve.prefix.blocks == first.blocks);
  cluster.reach(RequestState::reserving, 3, of_tenant("b"));
  CHECK(cluster.last_reserve.prefix.blocks[0] != first.blocks[0]);
  cluster.reach(RequestState::reserving, 4, of_tenant("a", 20));
  CHECK(cluster.last_reserve.prefix.blocks == std::vector{first.blocks[0]});
}

TEST_CASE("names are of the instances' numerics: what computes in another way is never shared") {
  const auto first_name = [](uint64_t numerics) {
    Cluster cluster;
    cluster.join_prefill(kP1);
    Register info = Cluster::registration(Role::decode, 4, 64);
    info.numerics_id = numerics;
    cluster.join(kD1, info);
    cluster.reach(RequestState::reserving, 1, of_tenant("a"));
    CHECK(cluster.last_reserve.prefix.weights_version == kFirstWeights);
    return cluster.last_reserve.prefix.blocks[0];
  };
  CHECK(first_name(5) == first_name(5));
  CHECK(first_name(5) != first_name(6));
}

TEST_CASE("prefill hears the root of its own names, and where the target's positions begin") {
  Cluster cluster;
  cluster.form();
  cluster.admitted(1, of_tenant("a"));
  Cluster::Life life = cluster.reserving();
  cluster.reserved(life, 32);
  const Run run = cluster.context.expect<Run>().message;
  CHECK(run.from_token == 32);
  CHECK(run.prefix.named());
  CHECK(run.prefix.blocks.empty());
}

TEST_CASE("switched off, nothing is named") {
  SchedulerOptions options = default_options();
  options.prefix_cache = false;
  Cluster cluster(options);
  cluster.form();
  cluster.reach(RequestState::prefill, 1);
  CHECK_FALSE(cluster.last_reserve.prefix.named());
  CHECK_FALSE(cluster.last_run.prefix.named());
}

TEST_CASE("a retry's names go on into what is committed") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::freezing, 1, of_tenant("a", 30));
  cluster.frozen(1, {life.epoch.value + 1}, std::vector<TokenId>(20, 7));
  cluster.reserving();
  CHECK(cluster.last_reserve.tokens == 50);
  CHECK(cluster.last_reserve.prefix.blocks.size() == 3);
}

TEST_CASE(
    "T81: a prompt that the decode side computes is counted, and prefill hears nothing of it") {
  Cluster cluster(with_local(LocalPrefillPolicy::Mode::fixed, 100));
  cluster.form();
  const Cluster::Life life = start(cluster, 1);
  CHECK(cluster.last_reserve.local_tokens == 100);
  CHECK(cluster.scheduler.counters().local_prefills == 1);
  CHECK(cluster.scheduler.members().live().begin()->second.arriving == 0);
  Usage usage;
  usage.cached_tokens = 16;
  cluster.say(life.target, life, Adopted{life.transfer, usage});
  CHECK(cluster.state_of(1) == RequestState::decode);
  usage.prefill_us = 4321;
  cluster.say(life.target, life, Adopted{life.transfer, usage});
  CHECK(cluster.scheduler.counters().dropped_messages == 0);
  cluster.slot_freed(life);
  CHECK(cluster.state_of(1) == RequestState::closing);
  cluster.done(1);
  const Usage told = cluster.context.expect<DoneAck>().message.usage;
  CHECK(told.prefill_us == 4321);
  CHECK(told.cached_tokens == 16);
  CHECK(told.prefill_rank == kD1.rank);
  CHECK(cluster.all_slots_free());
}

TEST_CASE("TRANSFER by Start: refused, lost, or too late, and the request is tried again") {
  Cluster cluster(with_local(LocalPrefillPolicy::Mode::fixed, 100));
  cluster.form();
  cluster.join_decode(kD2);
  Cluster::Life refused = start(cluster, 1);
  cluster.say(refused.target, refused, AdoptFailed{refused.transfer, {}});
  CHECK(cluster.state_of(1) == RequestState::freezing);
  Cluster::Life lost = start(cluster, 2);
  cluster.alive.erase(lost.target);
  cluster.pass(5 * kSecond);
  CHECK(cluster.state_of(2) == RequestState::freezing);
  Cluster::Life late = start(cluster, 3);
  cluster.pass(default_options().limits.stage_us + kSecond);
  CHECK(cluster.state_of(3) == RequestState::freezing);
  CHECK(cluster.context.take<Release>(late.target));
}

TEST_CASE("TRANSFER by Start: the death of the prefill instance that was chosen changes nothing") {
  Cluster cluster(with_local(LocalPrefillPolicy::Mode::fixed, 100));
  cluster.form();
  const Cluster::Life life = start(cluster, 1);
  cluster.alive.erase(kP1);
  cluster.pass(5 * kSecond);
  CHECK(cluster.state_of(1) == RequestState::transfer);
  cluster.adopted(life);
  CHECK(cluster.state_of(1) == RequestState::decode);
}

TEST_CASE("TRANSFER by Start: a cancel reaches the decode instance, and its slot comes home") {
  Cluster cluster(with_local(LocalPrefillPolicy::Mode::fixed, 100));
  cluster.form();
  const Cluster::Life life = start(cluster, 1);
  cluster.cancel(1);
  CHECK(cluster.ended(1));
  CHECK(cluster.context.take<Release>(life.target));
  CHECK(cluster.context.take<Cancel>(life.target));
  cluster.slot_freed(life, Finish::cancelled);
  CHECK(cluster.all_slots_free());
}

TEST_CASE("without a prefill instance, decode instances serve alone where that is allowed") {
  Cluster cluster(with_local(LocalPrefillPolicy::Mode::automatic));
  cluster.join_decode(kD1);
  cluster.admitted(1);
  Cluster::Life life = cluster.reserving();
  CHECK_FALSE(cluster.last_reserve.has_source());
  CHECK(cluster.last_reserve.local_tokens == UINT32_MAX);
  cluster.reserved(life, 0, true);
  CHECK(cluster.context.take<Start>(kD1));

  Cluster without;
  without.join_decode(kD1);
  without.admit(1);
  CHECK(without.context.expect<AdmitRefused>().message.refusal.code == ErrorCode::unavailable);
}

TEST_CASE("a scored prompt that might be computed on the decode side has no blocks to look up") {
  Cluster cluster(with_local(LocalPrefillPolicy::Mode::fixed, 100));
  cluster.form();
  Admit admit = Cluster::ask(40);
  admit.sampling.prompt_logprobs = 0;
  cluster.reach(RequestState::reserving, 1, admit);
  CHECK(cluster.last_reserve.prefix.named());  // what is computed may be kept
  CHECK(cluster.last_reserve.prefix.blocks.empty());
}

TEST_CASE("T18: what waited beyond its deadline is not placed any more") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 1);
  const Cluster::Life first = cluster.reach(RequestState::decode, 1);
  cluster.admit(2, Cluster::ask(), 40 * kMillisecond);
  REQUIRE(cluster.context.take<Admitted>());
  cluster.context.stall(50 * kMillisecond);  // no sweep in between
  cluster.slot_freed(first);
  CHECK_FALSE(cluster.context.take<Reserve>());
  CHECK(cluster.context.expect<Failed>().message.refusal.code == ErrorCode::deadline_exceeded);
}

}  // namespace baton::test
