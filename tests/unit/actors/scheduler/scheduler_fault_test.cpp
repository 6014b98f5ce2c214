// Refusals and failures that a worker reports.

#include "tests/unit/actors/scheduler/cluster.h"

using namespace baton;
using namespace baton::test;

namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Refusal refusal(ErrorCode code, const std::string& text = "for a reason") {
  return {code, text, 0};
}

}  // namespace

TEST_CASE("T72: decode refuses, so prefill never hears of the request, which waits for its turn") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::reserving, 1);
  cluster.say(kD1, life, ReserveRefused{life.transfer, refusal(ErrorCode::busy)});
  CHECK(cluster.context.count<Run>() == 0);
  CHECK(cluster.context.count<Cancel>() == 0);
  CHECK(cluster.state_of(1) == RequestState::queued);
  const auto again = cluster.context.expect<Admitted>(kGateway);
  CHECK(again.envelope.epoch == Epoch{2});
  CHECK(cluster.all_slots_free());
  // Decode is not asked again before it has said what it has.
  CHECK(cluster.context.count<Reserve>() == 0);
  cluster.beat(kD1);
  const Cluster::Life next = cluster.reserving();
  CHECK(next.epoch == Epoch{2});
  CHECK(next.transfer != life.transfer);
  CHECK(cluster.scheduler.counters().migrations == 0);
}

TEST_CASE("T72: an AdoptFailed stops prefill at once") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::transfer, 1);
  cluster.say(kD1, life, AdoptFailed{life.transfer, refusal(ErrorCode::corrupt)});
  CHECK(cluster.context.expect<Cancel>(kP1).envelope.epoch == Epoch{1});
  CHECK(cluster.context.count<Release>(kD1) == 1);
  CHECK(cluster.slots(LeaseState::quarantined) == 1);
  CHECK(cluster.context.expect<Freeze>(kGateway).envelope.epoch == Epoch{2});
}

TEST_CASE("a request that is itself at fault is failed with the worker's words, not retried") {
  Cluster cluster;
  cluster.form();
  const Refusal reason = refusal(ErrorCode::context_too_long, "600 tokens, the context holds 512");
  Cluster::Life life = cluster.reach(RequestState::reserving, 1);
  cluster.say(kD1, life, ReserveRefused{life.transfer, reason});
  CHECK(cluster.context.expect<Failed>().message.refusal.text == reason.text);
  life = cluster.reach(RequestState::prefill, 2);
  cluster.say(kP1, life, RunRefused{life.transfer, reason});
  CHECK(cluster.context.expect<Failed>().message.refusal.code == ErrorCode::context_too_long);
  CHECK(cluster.context.count<Release>(kD1) == 1);
  cluster.slot_freed(life);
  life = cluster.reach(RequestState::prefill, 3);
  cluster.say(kP1, life, PrefillFailed{life.transfer, refusal(ErrorCode::internal, "NaN"), false});
  CHECK(cluster.context.expect<Failed>().message.refusal.text == "NaN");
  CHECK(cluster.context.count<Freeze>() == 0);
  CHECK(cluster.scheduler.counters().failed == 3);
}

TEST_CASE("T25: a failure of prefill is acted on when it is told, with its reason") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  cluster.say(kP1, life, PrefillFailed{life.transfer, refusal(ErrorCode::internal, "out of luck")});
  const auto freeze = cluster.context.expect<Freeze>(kGateway);
  CHECK(contains(freeze.message.reason, "out of luck"));
  CHECK(contains(freeze.message.reason, "rank 1"));
  CHECK(cluster.context.count<Release>(kD1) == 1);
  CHECK(cluster.state_of(1) == RequestState::freezing);
  cluster.frozen(1, {2}, {});
  cluster.slot_freed(life);
  const Cluster::Life next = cluster.reserving();
  CHECK(next.epoch == Epoch{2});
}

TEST_CASE("T22: a failed worker is tried again with one request, and serves all after a success") {
  Cluster cluster;
  cluster.form();
  Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  cluster.say(kP1, life, PrefillFailed{life.transfer, refusal(ErrorCode::internal)});
  cluster.slot_freed(life);
  cluster.frozen(1, {2}, {});
  cluster.admitted(2);
  cluster.admitted(3);
  CHECK(cluster.context.count<Reserve>() == 1);  // the probe
  life = cluster.reserving();
  CHECK(life.request == RequestId{1});
  cluster.reserved(life);
  cluster.prefill_done(life);
  CHECK(cluster.context.count<Reserve>() == 2);
}

TEST_CASE("a mailbox that was full is a refusal") {
  Cluster cluster;
  cluster.form();
  Cluster::Life life = cluster.reach(RequestState::reserving, 1);
  const auto kind = [](MsgKind k) { return static_cast<uint16_t>(k); };
  cluster.say({2, kDecodeSlot, 1}, life, Undeliverable{kD1, kind(MsgKind::reserve), true});
  CHECK(cluster.state_of(1) == RequestState::queued);
  CHECK(cluster.all_slots_free());
  cluster.beat(kD1);
  life = cluster.reserving();
  cluster.reserved(life);
  cluster.say(kP1, life, Undeliverable{kP1, kind(MsgKind::run), true});
  CHECK(cluster.state_of(1) == RequestState::freezing);
  CHECK(cluster.scheduler.members().live().size() == 2);
}

TEST_CASE("retries after failures are counted, and the last failure is told") {
  Cluster cluster;
  cluster.form();
  Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  const auto most = static_cast<uint32_t>(Limits{}.attempts_max);
  for (uint32_t attempt = 1; attempt <= most + 1; ++attempt) {
    cluster.say(kP1, life, PrefillFailed{life.transfer, refusal(ErrorCode::internal, "again")});
    cluster.slot_freed(life);
    const Epoch epoch{attempt + 1};
    CHECK(cluster.context.expect<Freeze>().envelope.epoch == epoch);
    cluster.frozen(1, epoch, {});
    if (attempt > most) break;
    cluster.pass(11 * kSecond);
    life = cluster.reserving();
    CHECK(life.epoch == epoch);
    cluster.reserved(life);
    CHECK(cluster.context.expect<Run>().message.usage.attempts == attempt);
  }
  const auto failed = cluster.context.expect<Failed>();
  CHECK(failed.message.refusal.code == ErrorCode::worker_lost);
  CHECK(contains(failed.message.refusal.text, "retried 3 times"));
  CHECK(contains(failed.message.refusal.text, "again"));
  CHECK(cluster.ended(1));
}

TEST_CASE("T79: a preempted request goes to the head of the line with its tokens, as no attempt") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 1);
  Cluster::Life life = cluster.reach(RequestState::decode, 1);
  cluster.admitted(2);
  cluster.say(kD1, life, Preempted{life.slot});
  CHECK(cluster.slots(LeaseState::quarantined) == 1);
  const auto freeze = cluster.context.expect<Freeze>();
  CHECK(freeze.envelope.epoch == Epoch{2});
  cluster.frozen(1, {2}, {7, 8, 9});
  CHECK(cluster.context.count<Reserve>() == 0);  // its blocks are not back yet
  cluster.slot_freed(life, Finish::none);
  Cluster::Life next = cluster.reserving();
  CHECK(next.request == RequestId{1});
  CHECK(cluster.last_reserve.tokens == 23);
  CHECK(cluster.last_reserve.new_tokens == 27);
  cluster.reserved(next);
  const Run run = cluster.context.expect<Run>().message;
  CHECK(run.committed == std::vector<std::vector<TokenId>>{{7, 8, 9}});
  CHECK(run.usage.attempts == 0);
  CHECK(cluster.scheduler.counters().preemptions == 1);
  CHECK(cluster.scheduler.counters().migrations == 0);
  // The slot of the old life cannot be credited to the new one.
  cluster.say(kD1, life, SlotFreed{life.slot, 0, 1, 60, Finish::none});
  CHECK(cluster.state_of(1) == RequestState::prefill);
  CHECK(cluster.scheduler.counters().slots_credited_late == 1);
}
