// Updates of the weights as the scheduler performs them: what workers, clients and running requests
// hear. The rules alone are in weights_update_test.cpp.

#include <string>

#include "tests/unit/actors/scheduler/cluster.h"

#include <doctest/doctest.h>

namespace baton::test {
namespace {

struct Update {
  Cluster c;

  Update() {
    c.join_prefill(kP1);
    c.join_decode(kD1);
    c.context.forget_sent();
  }
  UpdateWeights ask(WeightsPolicy policy, const std::string& path = "/w2") {
    UpdateWeights ask;
    ask.token = path;
    ask.source.path = path;
    ask.policy = policy;
    return ask;
  }
  UpdateReport asked(const UpdateWeights& what) {
    c.deliver(kGateway, what, {{}, {}, 77, kNever});
    Sent<UpdateReport> sent = c.context.expect<UpdateReport>(kGateway);
    CHECK(sent.envelope.correlation == 77);
    while (auto later = c.context.take<UpdateReport>(kGateway)) sent = *std::move(later);
    return sent.message;
  }
  void ready(ActorId worker, uint64_t digest = 5) {
    const Sent<WeightsPrepare> sent = c.context.expect<WeightsPrepare>(worker);
    const WeightsOrder& order = sent.message.order;
    c.deliver(worker, WeightsReady{order.version, order.ticket, digest, 100, 7, false});
  }
  void commit_all(WeightsPolicy policy) {
    asked(ask(policy));
    ready(kP1);
    ready(kD1);
    for (const ActorId worker : {kP1, kD1}) {
      CHECK(c.context.expect<WeightsCommit>(worker).message.version == 2);
      c.deliver(worker, WeightsCommitted{2});
    }
  }
  UpdateReport last_report() {
    UpdateReport last;
    while (const auto sent = c.context.take<UpdateReport>(kGateway)) last = sent->message;
    return last;
  }
  void dropped(ActorId worker, uint64_t version = 1) {
    CHECK(c.context.expect<WeightsDrop>(worker).message.version == version);
    c.deliver(worker, WeightsDropped{version});
  }
};

TEST_CASE("T97: an update of a cluster without requests is legal, and new requests use it") {
  Update u;
  u.commit_all(WeightsPolicy::finish);
  const UpdateReport report = u.last_report();
  CHECK(report.last);
  CHECK(report.phase == UpdatePhase::retiring);
  CHECK(report.version == 2);
  CHECK(report.digest == 5);
  u.dropped(kP1);
  u.dropped(kD1);
  CHECK(u.c.scheduler.weights().phase() == UpdatePhase::idle);
  Cluster::Life life = u.c.reach(RequestState::reserving, 1);
  CHECK(u.c.last_reserve.weights_version == 2);
  u.c.reserved(life);
  CHECK(u.c.context.expect<Run>().message.weights_version == 2);
}

TEST_CASE("finish: running requests stay on the old weights, which stay with them") {
  Update u;
  const Cluster::Life old = u.c.reach(RequestState::decode, 1);
  CHECK(u.c.last_run.weights_version == 1);
  u.commit_all(WeightsPolicy::finish);
  CHECK(u.c.context.count<WeightsDrop>() == 0);
  CHECK(u.c.context.count<Freeze>() == 0);
  CHECK(u.last_report().old_requests == 1);
  const Cluster::Life fresh = u.c.reach(RequestState::decode, 2);
  CHECK(u.c.last_run.weights_version == 2);
  // A retry of the old one goes on with what it had.
  u.c.say(old.target, old, Preempted{old.slot});
  u.c.slot_freed(old, Finish::none);
  u.c.frozen(1, {2}, {4, 5});
  const Cluster::Life again = u.c.reserving();
  CHECK(again.request == RequestId{1});
  CHECK(u.c.last_reserve.weights_version == 1);
  u.c.done(1, {2});
  u.dropped(kP1);
  u.dropped(kD1);
  CHECK(u.c.scheduler.weights().previous() == 0);
  CHECK(u.c.state_of(2) == RequestState::decode);
  (void)fresh;
}

TEST_CASE("continue: running requests are frozen and go on with the new weights") {
  Update u;
  u.c.reach(RequestState::decode, 1);
  u.commit_all(WeightsPolicy::resume);
  const Sent<Freeze> freeze = u.c.context.expect<Freeze>(kGateway);
  CHECK(freeze.envelope.request == RequestId{1});
  CHECK(freeze.envelope.epoch == Epoch{2});
  CHECK(u.c.context.expect<Cancel>(kD1).envelope.epoch == Epoch{1});
  CHECK(u.c.state_of(1) == RequestState::freezing);
  u.c.frozen(1, {2}, {4, 5});
  Cluster::Life again = u.c.reserving();
  CHECK(u.c.last_reserve.weights_version == 2);
  CHECK(u.c.last_reserve.tokens == 22);  // the prompt and what is committed, all computed again
  u.c.reserved(again);
  const Run run = u.c.context.expect<Run>().message;
  CHECK(run.weights_version == 2);
  CHECK(run.from_token == 0);
  CHECK(u.c.scheduler.counters().migrations == 0);  // no fault, so no attempt is counted
  u.dropped(kP1);
  u.dropped(kD1);
}

TEST_CASE("continue: what is only reserved is queued again without its client noticing") {
  Update u;
  const Cluster::Life life = u.c.reach(RequestState::reserving, 1);
  u.commit_all(WeightsPolicy::resume);
  CHECK(u.c.context.count<Freeze>() == 0);
  CHECK(u.c.context.expect<Release>(kD1).message.transfer == life.transfer);
  const Cluster::Life again = u.c.reserving();
  CHECK(again.epoch == Epoch{2});
  CHECK(u.c.last_reserve.weights_version == 2);
}

TEST_CASE("abort: running requests end with a sentence, queued ones do not") {
  Update u;
  Limits one;
  u.c.reach(RequestState::decode, 1);
  u.c.reach(RequestState::prefill, 2);
  u.c.reach(RequestState::reserving, 3);
  u.commit_all(WeightsPolicy::abort);
  CHECK(u.c.ended(1));
  CHECK(u.c.ended(2));
  const Failed failed = u.c.context.expect<Failed>(kGateway).message;
  CHECK(failed.refusal.code == ErrorCode::unavailable);
  CHECK(failed.refusal.text.find("version 2") != std::string::npos);
  CHECK(failed.refusal.retry_after_ms > 0);
  CHECK(u.c.state_of(3) == RequestState::reserving);
  u.c.reserving();
  CHECK(u.c.last_reserve.weights_version == 2);
}

TEST_CASE("a request whose old weights died with their last holder goes on with the new ones") {
  Update u;
  u.c.join_decode(kD2);
  u.c.context.forget_sent();
  u.asked(u.ask(WeightsPolicy::finish));
  const Cluster::Life life = u.c.reach(RequestState::decode, 1);
  const ActorId other = life.target == kD1 ? kD2 : kD1;
  for (const ActorId worker : {kP1, kD1, kD2}) u.ready(worker);
  for (const ActorId worker : {kP1, kD1, kD2}) u.c.deliver(worker, WeightsCommitted{2});
  u.c.context.forget_sent();
  // The other decode worker starts over: it has the new version, but not the old one any more.
  Register info = Cluster::registration(Role::decode, 4, 64);
  info.weights_version = 2;
  info.weights = {{2, 5, true, {"/w2", ""}}};
  ActorId next = other;
  next.incarnation = 2;
  u.c.alive.erase(other);
  u.c.join(next, info);
  u.c.context.forget_sent();
  u.c.deliver({0, 0, 0}, ActorDown{life.target, "it broke"});
  u.c.alive.erase(life.target);
  u.c.frozen(1, {2}, {4, 5, 6});
  u.c.pass(kSecond);
  const Cluster::Life again = u.c.reserving();
  CHECK(again.target == next);
  CHECK(u.c.last_reserve.weights_version == 2);
}

TEST_CASE("a worker that joins with old weights gets no work before it has the new ones") {
  Update u;
  u.commit_all(WeightsPolicy::finish);
  u.dropped(kP1);
  u.dropped(kD1);
  u.c.join_decode(kD2);
  const ClusterReply status = [&] {
    u.c.deliver(kGateway, ClusterQuery{});
    return u.c.context.expect<ClusterReply>().message;
  }();
  CHECK(status.weights_version == 2);
  for (const WorkerStatus& worker : status.workers) {
    CHECK(worker.weights_trouble.empty() == (worker.rank != kD2.rank));
  }
  for (uint64_t id = 1; id <= 2; ++id) CHECK(u.c.reach(RequestState::reserving, id).target == kD1);
  u.ready(kD2);
  CHECK(u.c.context.expect<WeightsCommit>(kD2).message.version == 2);
  u.c.admitted(9);
  CHECK(u.c.reserving().target == kD2);
}

TEST_CASE("T101: the second of two updates is refused; the same ask again is the same update") {
  Update u;
  CHECK(u.asked(u.ask(WeightsPolicy::finish)).phase == UpdatePhase::preparing);
  const UpdateReport refused = u.asked(u.ask(WeightsPolicy::finish, "/w3"));
  CHECK(refused.last);
  CHECK(refused.refusal.code == ErrorCode::conflict);
  const UpdateReport again = u.asked(u.ask(WeightsPolicy::finish));
  CHECK(again.phase == UpdatePhase::preparing);
  CHECK_FALSE(again.last);
  CHECK(u.c.scheduler.weights().counters().updates == 1);
}

TEST_CASE("T99: a file that a worker refuses changes nothing; the client hears rank and reason") {
  Update u;
  const Cluster::Life life = u.c.reach(RequestState::decode, 1);
  u.asked(u.ask(WeightsPolicy::resume));
  const WeightsOrder order = u.c.context.expect<WeightsPrepare>(kD1).message.order;
  u.c.deliver(
      kD1, WeightsFailed{order.version, order.ticket, {ErrorCode::bad_model, "/w2: bad magic", 0}});
  CHECK(u.c.context.expect<WeightsAbort>(kP1).message.version == 2);
  const UpdateReport report = u.last_report();
  CHECK(report.last);
  CHECK(report.phase == UpdatePhase::failed);
  CHECK(report.refusal.code == ErrorCode::bad_model);
  CHECK(report.refusal.text == "rank 2: /w2: bad magic");
  CHECK(u.c.context.count<WeightsCommit>() == 0);
  CHECK(u.c.state_of(1) == RequestState::decode);
  CHECK(u.c.scheduler.weights().current() == 1);
  (void)life;
}

}  // namespace
}  // namespace baton::test
