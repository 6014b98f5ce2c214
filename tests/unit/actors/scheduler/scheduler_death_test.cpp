// Deaths of workers and gateways.

#include <memory>

#include "tests/unit/actors/scheduler/cluster.h"

using namespace baton;
using namespace baton::test;

namespace {

constexpr RequestState kAttached[] = {RequestState::reserving, RequestState::prefill,
                                      RequestState::transfer, RequestState::decode};
constexpr RequestState kLiveStates[] = {
    RequestState::queued, RequestState::reserving, RequestState::prefill, RequestState::transfer,
    RequestState::decode, RequestState::freezing,  RequestState::closing};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Two of each role.
std::unique_ptr<Cluster> four() {
  auto cluster = std::make_unique<Cluster>();
  cluster->form();
  cluster->join_prefill(kP2);
  cluster->join_decode(kD2);
  return cluster;
}

ActorId other_prefill(ActorId one) {
  return one == kP1 ? kP2 : kP1;
}
ActorId other_decode(ActorId one) {
  return one == kD1 ? kD2 : kD1;
}

void kill(Cluster& cluster, ActorId who) {
  cluster.alive.erase(who);
  cluster.pass(3 * kSecond);
}

class ForgottenRanks : public ControlLink {
 public:
  void send(Mail) override {}
  void forget(uint32_t rank) override { ranks.push_back(rank); }
  std::vector<uint32_t> ranks;
};

}  // namespace

TEST_CASE("a dead decode worker: the stream is frozen and goes on elsewhere from its tokens") {
  auto cluster = four();
  const Cluster::Life life = cluster->reach(RequestState::decode, 1);
  kill(*cluster, life.target);
  const ActorId rest = other_decode(life.target);
  for (const ActorId who : {kP1, kP2, rest, kGateway}) {
    const auto news = cluster->context.expect<PeerDown>(who);
    CHECK(news.message.rank == life.target.rank);
    CHECK(news.message.incarnation == 1);
  }
  CHECK(cluster->context.expect<Freeze>().envelope.epoch == Epoch{2});
  cluster->frozen(1, {2}, {4, 5});
  Cluster::Life next = cluster->reserving();
  CHECK(next.target == rest);
  CHECK(next.epoch == Epoch{2});
  cluster->reserved(next);
  const Run run = cluster->context.expect<Run>().message;
  CHECK(run.committed == std::vector<std::vector<TokenId>>{{4, 5}});
  CHECK(run.usage.attempts == 1);
  CHECK(cluster->scheduler.counters().migrations == 1);
}

TEST_CASE("a death is found within three seconds") {
  Cluster cluster;
  cluster.form();
  cluster.pass(5 * kSecond);
  cluster.alive.erase(kD1);
  cluster.pass(2 * kSecond);
  CHECK(cluster.scheduler.members().live().size() == 2);
  cluster.pass(kSecond);
  CHECK(cluster.scheduler.members().live().size() == 1);
}

TEST_CASE("a killed rank, whose link breaks, is dead after the probe") {
  ForgottenRanks link;
  SchedulerOptions options = default_options();
  options.link = &link;
  Cluster cluster(options);
  cluster.form();
  cluster.reach(RequestState::decode, 1);
  cluster.deliver({0, 0, 0}, LinkDown{kD1.rank, 1, true, "closed"});
  cluster.context.advance(cluster.scheduler, 150 * kMillisecond);
  CHECK(cluster.state_of(1) == RequestState::decode);
  cluster.context.advance(cluster.scheduler, 200 * kMillisecond);
  CHECK(cluster.state_of(1) == RequestState::freezing);
  CHECK(link.ranks == std::vector<uint32_t>{kD1.rank});
}

TEST_CASE("a link that breaks and is made again is no death") {
  Cluster cluster;
  cluster.form();
  cluster.deliver({0, 0, 0}, LinkDown{kD1.rank, 1, true, "closed"});
  cluster.deliver({0, 0, 0}, LinkUp{kD1.rank, 1});
  cluster.deliver({0, 0, 0}, LinkDown{kP1.rank, 1, false, "slow"});
  cluster.context.advance(cluster.scheduler, 400 * kMillisecond);
  CHECK(cluster.scheduler.members().live().size() == 2);
}

TEST_CASE("T20: a dead prefill worker takes only what it was computing along") {
  auto cluster = four();
  const Cluster::Life decoding = cluster->reach(RequestState::decode, 1);
  Cluster::Life computing = cluster->reach(RequestState::prefill, 2);
  if (computing.source != decoding.source) computing = cluster->reach(RequestState::prefill, 3);
  REQUIRE(computing.source == decoding.source);
  kill(*cluster, decoding.source);
  CHECK(cluster->state_of(1) == RequestState::decode);
  CHECK(cluster->state_of(computing.request.value) == RequestState::freezing);
  // Decode lets go of the reservation, and serves on.
  CHECK(cluster->context.expect<Release>(computing.target).message.transfer == computing.transfer);
  cluster->slot_freed(decoding);
  CHECK(cluster->state_of(1) == RequestState::closing);
  cluster->slot_freed(computing, Finish::cancelled);
  cluster->frozen(computing.request.value, {2}, {});
  CHECK(cluster->reserving().source == other_prefill(decoding.source));
}

TEST_CASE("T21: the death of one worker does not make another one dead or refused") {
  auto cluster = four();
  kill(*cluster, kP1);
  CHECK(cluster->scheduler.members().live().size() == 3);
  cluster->admitted(1);
  CHECK(cluster->reserving().source == kP2);
}

TEST_CASE(
    "T24: a worker that restarts at the same place is another life; mail of the old is stale") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  const ActorId reborn{kP1.rank, kP1.slot, 2};
  cluster.alive.erase(kP1);
  cluster.join_prefill(reborn);  // before the old one was missed
  CHECK(cluster.scheduler.members().live().size() == 2);
  CHECK(cluster.state_of(1) == RequestState::freezing);
  const uint64_t fenced = cluster.scheduler.counters().fenced_messages;
  cluster.prefill_done(life);  // from the old life
  CHECK(cluster.scheduler.counters().fenced_messages == fenced + 1);
  cluster.deliver(kP1, Beat{});
  CHECK(cluster.context.expect<Refused>(kP1).message.refusal.code == ErrorCode::stale);
  cluster.deliver(kP1, Cluster::registration(Role::prefill, 0, 64));
  CHECK(cluster.context.expect<Refused>(kP1).message.refusal.code == ErrorCode::stale);
  cluster.slot_freed(life, Finish::cancelled);
  cluster.frozen(1, {2}, {});
  CHECK(cluster.reserving().source == reborn);
}

TEST_CASE("a worker that was declared dead and wakes is told so, and comes back as another life") {
  Cluster cluster;
  cluster.form();
  kill(cluster, kD1);
  cluster.beat(kD1);
  CHECK(cluster.context.expect<Refused>(kD1).message.refusal.code == ErrorCode::stale);
  CHECK(cluster.context.count<BeatAck>() == 0);
  const ActorId reborn{kD1.rank, kD1.slot, 2};
  cluster.join_decode(reborn, 2, 30);
  CHECK(cluster.slots(LeaseState::free) == 2);
  cluster.admitted(1);
  CHECK(cluster.reserving().target == reborn);
}

TEST_CASE("mail that comes back because its life has ended is the news of a death") {
  auto cluster = four();
  const Cluster::Life life = cluster->reach(RequestState::decode, 1);
  cluster->deliver({life.target.rank, 0, 0},
                   Undeliverable{life.target, static_cast<uint16_t>(MsgKind::cancel), false});
  CHECK(cluster->state_of(1) == RequestState::freezing);
  CHECK(cluster->scheduler.members().live().size() == 3);
}

TEST_CASE("an actor of the scheduler's own process that failed is buried at once") {
  Cluster cluster;
  const ActorId prefill{0, kPrefillSlot, 1}, decode{0, kDecodeSlot, 1};
  cluster.join_prefill(prefill);
  cluster.join_decode(decode);
  cluster.reach(RequestState::prefill, 1);
  cluster.deliver(prefill, ActorDown{prefill, "it threw"});
  CHECK(contains(cluster.context.expect<Freeze>().message.reason, "it threw"));
  CHECK(cluster.scheduler.members().live().size() == 1);
}

TEST_CASE("a request that two workers died with is quarantined, in whatever stages") {
  auto cluster = four();
  const Cluster::Life life = cluster->reach(RequestState::prefill, 1);
  kill(*cluster, life.source);
  cluster->slot_freed(life, Finish::cancelled);
  cluster->frozen(1, {2}, {});
  Cluster::Life next = cluster->reserving();
  cluster->reserved(next);
  cluster->prefill_done(next);
  cluster->adopted(next);
  kill(*cluster, next.target);
  cluster->frozen(1, {3}, {1});
  const auto failed = cluster->context.expect<Failed>();
  CHECK(failed.message.refusal.code == ErrorCode::worker_lost);
  CHECK(contains(failed.message.refusal.text, "2 workers died"));
  CHECK(contains(failed.message.refusal.text, "rank " + std::to_string(next.target.rank)));
  CHECK(cluster->scheduler.counters().poisoned == 1);
  CHECK(cluster->all_slots_free());
}

TEST_CASE("a stream that was complete when its worker died is not run again") {
  auto cluster = four();
  Cluster::Life life = cluster->reach(RequestState::decode, 1);
  kill(*cluster, life.target);
  cluster->frozen(1, {2}, {1, 2}, true);
  CHECK(cluster->state_of(1) == RequestState::closing);
  CHECK(cluster->context.count<Reserve>() == 0);
  cluster->done(1, {2});
  CHECK(cluster->context.count<DoneAck>() == 1);
  // Also when the slot had been freed, but the last tokens may not have arrived.
  life = cluster->reach(RequestState::closing, 2);
  kill(*cluster, life.target);
  CHECK(cluster->state_of(2) == RequestState::freezing);
}

TEST_CASE("an answer to an earlier Freeze is not taken for the present one") {
  auto cluster = four();
  const Cluster::Life life = cluster->reach(RequestState::decode, 1);
  kill(*cluster, life.target);
  cluster->frozen(1, {1}, {});
  CHECK(cluster->state_of(1) == RequestState::freezing);
  cluster->frozen(1, {2}, {});
  CHECK(cluster->state_of(1) == RequestState::reserving);
  cluster->frozen(1, {2}, {});
  CHECK(cluster->state_of(1) == RequestState::reserving);
}

TEST_CASE("what still runs under an old epoch is told to stop") {
  auto cluster = four();
  const Cluster::Life life = cluster->reach(RequestState::transfer, 1);
  kill(*cluster, life.source);
  cluster->context.forget_sent();
  cluster->adopted(life);  // was under way
  const auto cancel = cluster->context.expect<Cancel>(life.target);
  CHECK(cancel.envelope.epoch == Epoch{1});
  CHECK(cancel.message.reason == ErrorCode::stale);
  CHECK(cluster->state_of(1) == RequestState::freezing);
  CHECK(cluster->slots(LeaseState::quarantined) == 1);
}

TEST_CASE(
    "after the last decode worker's death requests wait, new ones are refused, then all end") {
  SchedulerOptions options = default_options();
  options.limits.stage_us = 20 * kSecond;
  options.grace_us = 5 * kSecond;
  Cluster cluster(options);
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::decode, 1);
  kill(cluster, kD1);
  cluster.frozen(1, {2}, {3});
  cluster.admitted(2);  // within the grace time
  cluster.pass(6 * kSecond);
  cluster.admit(3);
  CHECK(cluster.context.expect<AdmitRefused>().message.refusal.code == ErrorCode::unavailable);
  CHECK(cluster.state_of(1) == RequestState::queued);
  cluster.pass(20 * kSecond);
  const auto first = cluster.context.expect<Failed>();
  CHECK(first.envelope.request == RequestId{1});
  CHECK(first.message.refusal.code == ErrorCode::worker_lost);
  CHECK(contains(first.message.refusal.text, "rank " + std::to_string(life.target.rank)));
  const auto second = cluster.context.expect<Failed>();
  CHECK(second.envelope.request == RequestId{2});
  CHECK(second.message.refusal.code == ErrorCode::unavailable);
}

TEST_CASE("requests that waited for a decode worker go on when one joins") {
  Cluster cluster;
  cluster.form();
  cluster.reach(RequestState::decode, 1);
  kill(cluster, kD1);
  cluster.frozen(1, {2}, {3});
  cluster.pass(5 * kSecond);
  cluster.join_decode(kD2);
  CHECK(cluster.reserving().request == RequestId{1});
}

TEST_CASE("the death of a gateway cancels its requests in every state") {
  for (const RequestState state : kLiveStates) {
    INFO(request_state_name(state));
    Cluster cluster;
    cluster.join_prefill(kP1);
    cluster.join_decode(kD1, 1);
    if (state == RequestState::queued) cluster.reach(RequestState::decode, 99);
    cluster.reach(state, 1);
    cluster.context.forget_sent();
    cluster.deliver(kGateway, ActorDown{kGateway, "it threw"});
    CHECK(cluster.scheduler.requests().size() == 0);
    CHECK(cluster.context.count<Failed>() == 0);
    const bool held = state == RequestState::prefill || state == RequestState::transfer;
    CHECK(cluster.context.count<Cancel>(kP1) == (held ? 1 : 0));
    CHECK(cluster.slots(LeaseState::reserved) + cluster.slots(LeaseState::active) == 0);
  }
  // The first word of the next life says the same.
  Cluster cluster;
  cluster.form();
  cluster.reach(RequestState::decode, 1);
  const ActorId reborn{0, kGatewaySlot, 2};
  cluster.admit(2, Cluster::ask(), kNever, reborn);
  CHECK(cluster.ended(1));
  CHECK_FALSE(cluster.ended(2));
  cluster.admit(3);  // the old life
  CHECK(cluster.ended(3));
  CHECK(cluster.scheduler.counters().fenced_messages == 1);
}

TEST_CASE("every attached state survives the death of either peer") {
  for (const RequestState state : kAttached) {
    for (const bool source : {true, false}) {
      INFO(request_state_name(state), source ? " prefill dies" : " decode dies");
      auto cluster = four();
      const Cluster::Life life = cluster->reach(state, 1);
      kill(*cluster, source ? life.source : life.target);
      const bool unharmed = state == RequestState::decode && source;
      if (unharmed) {
        CHECK(cluster->state_of(1) == RequestState::decode);
        continue;
      }
      if (state == RequestState::reserving) {
        // Nothing has run: it goes straight to another pair under the next epoch.
        CHECK(cluster->state_of(1) == RequestState::reserving);
      } else {
        CHECK(cluster->state_of(1) == RequestState::freezing);
        cluster->frozen(1, {2}, {});
      }
      const Cluster::Life next = cluster->reserving();
      CHECK(next.epoch == Epoch{2});
      CHECK((source ? next.source : next.target) ==
            (source ? other_prefill(life.source) : other_decode(life.target)));
    }
  }
}
