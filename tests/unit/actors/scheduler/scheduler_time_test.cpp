// Deadlines, stages, leases, pauses; and who may speak at all.

#include "tests/unit/actors/scheduler/cluster.h"

using namespace baton;
using namespace baton::test;

namespace {

constexpr RequestState kLiveStates[] = {
    RequestState::queued, RequestState::reserving, RequestState::prefill, RequestState::transfer,
    RequestState::decode, RequestState::freezing,  RequestState::closing};

void kill(Cluster& cluster, ActorId who) {
  cluster.alive.erase(who);
  cluster.pass(3 * kSecond);
}

}  // namespace

TEST_CASE("a deadline ends a request in every state, with one word to the gateway") {
  for (const RequestState state : kLiveStates) {
    INFO(request_state_name(state));
    Cluster cluster;
    cluster.join_prefill(kP1);
    cluster.join_decode(kD1, 1);
    if (state == RequestState::queued) cluster.reach(RequestState::decode, 99);
    cluster.admit(1, Cluster::ask(), 2 * kSecond);
    REQUIRE(cluster.context.take<Admitted>());
    Cluster::Life life;
    if (state != RequestState::queued) life = cluster.reserving();
    if (state > RequestState::reserving) cluster.reserved(life);
    if (state > RequestState::prefill) cluster.prefill_done(life);
    if (state > RequestState::transfer) cluster.adopted(life);
    if (state == RequestState::freezing) cluster.say(kD1, life, Preempted{life.slot});
    if (state > RequestState::decode) cluster.slot_freed(life);
    REQUIRE(cluster.state_of(1) == state);
    cluster.pass(kSecond);
    CHECK(cluster.context.count<Failed>() == 0);
    cluster.pass(1250 * kMillisecond);
    CHECK(cluster.context.count<Failed>() == 1);
    CHECK(cluster.context.expect<Failed>().message.refusal.code == ErrorCode::deadline_exceeded);
    CHECK(cluster.ended(1));
    CHECK(cluster.scheduler.counters().failed == 1);
  }
}

TEST_CASE("T28: every stage that waits for somebody has a limit of its own") {
  SchedulerOptions options = default_options();
  options.limits.stage_us = 3 * kSecond;
  for (const RequestState state : kLiveStates) {
    if (state == RequestState::queued || state == RequestState::decode) continue;
    INFO(request_state_name(state));
    Cluster cluster(options);
    cluster.form();
    cluster.reach(state, 1);
    cluster.pass(2 * kSecond);
    CHECK(cluster.state_of(1) == state);
    cluster.pass(1500 * kMillisecond);
    switch (state) {
      case RequestState::reserving:
        CHECK(cluster.context.expect<Admitted>().envelope.epoch == Epoch{2});
        CHECK(cluster.context.count<Release>(kD1) == 1);
        break;
      case RequestState::freezing:
        CHECK(cluster.context.expect<Failed>().envelope.request == RequestId{1});
        break;
      default:
        CHECK(cluster.state_of(1) == RequestState::freezing);
        CHECK(cluster.context.expect<Freeze>().envelope.epoch.value >= 2);
        break;
    }
  }
}

TEST_CASE("T28: a prompt that waits behind others is given time while its worker makes steps") {
  SchedulerOptions options = default_options();
  options.limits.stage_us = 3 * kSecond;
  Cluster cluster(options);
  cluster.form();
  cluster.reach(RequestState::prefill, 1);
  for (int second = 0; second < 10; ++second) {
    ++cluster.steps[kP1];
    cluster.pass(kSecond);
    CHECK(cluster.state_of(1) == RequestState::prefill);
  }
  cluster.pass(7 * kSecond);  // no step any more
  CHECK(cluster.state_of(1) == RequestState::freezing);
}

TEST_CASE("T28: a prompt that its prefill worker has forgotten is not waited for for ever") {
  SchedulerOptions options = default_options();
  options.limits.stage_us = 3 * kSecond;
  Cluster cluster(options);
  cluster.form();
  cluster.reach(RequestState::prefill, 1);
  int seconds = 0;
  for (; cluster.state_of(1) == RequestState::prefill && seconds < 60; ++seconds) {
    ++cluster.steps[kP1];  // with others
    cluster.pass(kSecond);
  }
  CHECK(cluster.state_of(1) == RequestState::freezing);
  CHECK(seconds >= 30);
  CHECK(seconds <= 35);
}

TEST_CASE("T1: Reserved that comes after its lease was reclaimed is released again") {
  SchedulerOptions options = default_options();
  options.limits.lease_us = 2 * kSecond;
  options.limits.stage_us = 2 * kSecond;
  Cluster cluster(options);
  cluster.form();
  Cluster::Life life = cluster.reach(RequestState::reserving, 1);
  cluster.cancel(1);
  CHECK(cluster.context.count<Release>(kD1) == 1);
  cluster.pass(6 * kSecond);
  CHECK(cluster.all_slots_free());
  cluster.reserved(life);
  CHECK(cluster.context.count<Release>(kD1) == 2);
  CHECK(cluster.context.count<Run>() == 0);
  CHECK(cluster.all_slots_free());
}

TEST_CASE("T11: time is kept while nothing arrives and nothing can be scheduled") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 1);
  cluster.reach(RequestState::decode, 1);
  cluster.admit(2, Cluster::ask(), 700 * kMillisecond);
  cluster.context.forget_sent();
  cluster.context.advance(cluster.scheduler, kSecond);
  CHECK(cluster.context.expect<Failed>().envelope.request == RequestId{2});
  CHECK(cluster.context.timers_pending() == 1);
}

TEST_CASE(
    "T1: slots whose end is never told are reclaimed; what is told late is not counted twice") {
  SchedulerOptions options = default_options();
  options.limits.lease_us = 2 * kSecond;
  options.limits.stage_us = 2 * kSecond;
  Cluster cluster(options);
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 1);
  const Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  cluster.cancel(1);
  cluster.admitted(2);
  cluster.pass(3 * kSecond);
  CHECK(cluster.slots(LeaseState::quarantined) == 1);
  cluster.pass(2 * kSecond);
  CHECK(cluster.slots(LeaseState::quarantined) == 0);
  CHECK(cluster.context.count<Reserve>() == 0);  // decode says that it has no slot
  cluster.slot_freed(life, Finish::cancelled);
  CHECK(cluster.scheduler.counters().slots_credited_late == 1);
  CHECK(cluster.reserving().request == RequestId{2});
  CHECK(cluster.slots(LeaseState::free) == 0);
}

TEST_CASE("nobody is declared dead, and no stage times out, because the scheduler was stopped") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::transfer, 1);
  cluster.pass(kSecond);
  cluster.context.stall(100 * kSecond);
  cluster.context.advance(cluster.scheduler, 300 * kMillisecond);
  CHECK(cluster.scheduler.members().live().size() == 2);
  CHECK(cluster.state_of(1) == RequestState::transfer);
  CHECK(cluster.scheduler.counters().pauses == 1);
  cluster.pass(2 * kSecond);
  cluster.adopted(life);
  CHECK(cluster.state_of(1) == RequestState::decode);
  // Afterwards death is found as ever.
  kill(cluster, kD1);
  CHECK(cluster.scheduler.members().live().size() == 1);
}

TEST_CASE("what arrives first after a pause does not make its sender younger than now") {
  Cluster cluster;
  cluster.form();
  cluster.pass(kSecond);
  cluster.context.stall(30 * kSecond);
  cluster.beat(kD1);  // waited in the mailbox, and is handled before the sweep
  kill(cluster, kD1);
  CHECK(cluster.scheduler.members().live().size() == 1);
}

TEST_CASE("ranks with other numerics work together, and the result says that it is not exact") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  Register other = Cluster::registration(Role::decode, 4, 64);
  other.numerics_id = 6;
  cluster.join(kD1, other);
  cluster.reach(RequestState::closing, 1);
  CHECK_FALSE(cluster.last_run.usage.exact);
  cluster.done(1);
  CHECK_FALSE(cluster.context.expect<DoneAck>().message.usage.exact);
}

TEST_CASE("messages from somebody who has not joined change nothing") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::transfer, 1);
  const ActorId stranger{9, kDecodeSlot, 1};
  cluster.say(stranger, life, Adopted{life.transfer, {}});
  cluster.say(stranger, life, SlotFreed{life.slot, 0, 9, 9, Finish::stop});
  cluster.say(kP1, life, Adopted{life.transfer, {}});  // joined, but not the target
  CHECK(cluster.state_of(1) == RequestState::transfer);
  CHECK(cluster.scheduler.counters().fenced_messages == 3);
  cluster.deliver(stranger, Beat{});
  CHECK(cluster.context.expect<Refused>(stranger).message.refusal.code == ErrorCode::stale);
}

TEST_CASE("a word of an old epoch changes nothing, even with the right transfer and sender") {
  Cluster cluster;
  cluster.form();
  Cluster::Life life = cluster.reach(RequestState::transfer, 1);
  life.epoch = {0};
  cluster.adopted(life);
  CHECK(cluster.state_of(1) == RequestState::transfer);
  CHECK(cluster.scheduler.counters().fenced_messages == 1);
  CHECK(cluster.context.expect<Cancel>(kD1).envelope.epoch == Epoch{0});
}
