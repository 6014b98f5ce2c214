// The straight path of a request, and what the gateway may ask.

#include "tests/unit/actors/scheduler/cluster.h"

using namespace baton;
using namespace baton::test;

namespace {

constexpr RequestState kLiveStates[] = {
    RequestState::queued, RequestState::reserving, RequestState::prefill, RequestState::transfer,
    RequestState::decode, RequestState::freezing,  RequestState::closing};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

uint64_t counter(const ClusterReply& reply, const std::string& name) {
  for (const NamedCount& count : reply.counters) {
    if (count.name == name) return count.value;
  }
  FAIL("no counter ", name);
  return 0;
}

}  // namespace

TEST_CASE("a request goes from Admit to DoneAck, and everything is free again") {
  Cluster cluster;
  cluster.form();
  cluster.admit(11, Cluster::ask(20, 30), 5 * kSecond);
  const auto admitted = cluster.context.expect<Admitted>(kGateway);
  CHECK(admitted.envelope.request == RequestId{11});
  CHECK(admitted.envelope.epoch == Epoch{1});

  const auto reserve = cluster.context.expect<Reserve>(kD1);
  CHECK(reserve.envelope.request == RequestId{11});
  CHECK(reserve.envelope.epoch == Epoch{1});
  CHECK(reserve.envelope.remaining_us == 5 * kSecond);
  CHECK(reserve.message.source == kP1);
  CHECK(reserve.message.tokens == 20);
  CHECK(reserve.message.new_tokens == 30);
  CHECK(reserve.message.plan.value != 0);
  CHECK(cluster.slots(LeaseState::reserved) == 1);

  Cluster::Life life{{11}, {1}, reserve.message.transfer, kP1, kD1, {{3}, {9}}};
  cluster.context.stall(200);
  cluster.say(kD1, life, Reserved{life.transfer, {life.slot}, {{5}, {8}}, 0, 2});
  const auto run = cluster.context.expect<Run>(kP1);
  CHECK(run.message.ids == Cluster::ask(20, 30).ids);
  CHECK(run.message.choices == std::vector<uint32_t>{0});
  CHECK(run.message.committed == std::vector<std::vector<TokenId>>{{}});
  CHECK(run.message.gateway == kGateway);
  CHECK(run.message.target == kD1);
  CHECK(run.message.transfer == life.transfer);
  CHECK(run.message.tag_first == reserve.message.tag_first);
  CHECK(run.message.plan == reserve.message.plan);
  CHECK(run.message.target_blocks == std::vector<BlockId>{{5}, {8}});
  CHECK(run.message.stops.max_tokens == 30);
  CHECK(run.message.sampling.seed == 3);
  CHECK(run.message.usage.queue_us == 200);
  CHECK(run.message.usage.prompt_tokens == 20);
  CHECK(run.message.usage.prefill_rank == 1);
  CHECK(run.message.usage.decode_rank == 2);
  CHECK(run.message.usage.exact);
  CHECK(run.envelope.remaining_us == 5 * kSecond - 200);

  cluster.prefill_done(life);
  CHECK(cluster.state_of(11) == RequestState::transfer);
  cluster.adopted(life);
  CHECK(cluster.state_of(11) == RequestState::decode);
  CHECK(cluster.slots(LeaseState::active) == 1);
  cluster.slot_freed(life);
  CHECK(cluster.state_of(11) == RequestState::closing);
  CHECK(cluster.all_slots_free());
  cluster.context.forget_sent();
  cluster.done(11);
  const auto ack = cluster.context.expect<DoneAck>(kGateway);
  CHECK(ack.message.usage.completion_tokens == 3);
  CHECK(ack.message.usage.prompt_tokens == 20);
  CHECK(cluster.context.sent.empty());  // nothing is held any more: no Cancel
  CHECK(cluster.ended(11));
  CHECK(cluster.scheduler.counters().finished == 1);
}

TEST_CASE("Adopted may come before PrefillDone") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  cluster.adopted(life);
  CHECK(cluster.state_of(1) == RequestState::decode);
  cluster.prefill_done(life);
  CHECK(cluster.state_of(1) == RequestState::decode);
  CHECK(cluster.scheduler.counters().fenced_messages == 0);
}

TEST_CASE("a request that ends with its first token releases its reservation") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  cluster.prefill_done(life, Finish::length);
  const auto release = cluster.context.expect<Release>(kD1);
  CHECK(release.message.transfer == life.transfer);
  CHECK(cluster.context.count<Cancel>() == 0);
  CHECK(cluster.state_of(1) == RequestState::closing);
  CHECK(cluster.slots(LeaseState::quarantined) == 1);
  cluster.slot_freed(life, Finish::cancelled);
  CHECK(cluster.all_slots_free());
  cluster.done(1);
  CHECK(cluster.context.count<DoneAck>() == 1);
}

TEST_CASE("T46: a prompt that decode has in full is announced all the same, with where to begin") {
  Cluster cluster;
  cluster.form();
  cluster.admitted(1, Cluster::ask(32, 8));
  Cluster::Life life = cluster.reserving();
  cluster.reserved(life, 32);
  CHECK(cluster.context.expect<Run>(kP1).message.from_token == 32);
}

TEST_CASE("tags and transfers are never used twice") {
  Cluster cluster;
  cluster.form();
  std::set<uint64_t> transfers;
  uint32_t tag_end = 0;
  for (uint64_t id = 1; id <= 40; ++id) {
    const Cluster::Life life = cluster.reach(RequestState::closing, id, Cluster::ask(40, 4));
    CHECK(transfers.insert(life.transfer.value).second);
    if (id > 1) CHECK(cluster.last_reserve.tag_first >= tag_end);
    tag_end = cluster.last_reserve.tag_first + 3;  // 40 positions are 3 blocks
    CHECK(cluster.last_reserve.tag_first < (1u << 30));
    cluster.done(id);
  }
}

TEST_CASE("tags begin again before they need more than 30 bits") {
  class NearTheEnd : public FakeContext {
   public:
    using FakeContext::FakeContext;
    uint64_t random() override { return (uint64_t{1} << 30) - 4; }
  };
  NearTheEnd context({0, kSchedulerSlot, 1});
  Scheduler scheduler(default_options());
  scheduler.start(context);
  context.deliver(scheduler, kP1, Cluster::registration(Role::prefill, 0, 64));
  context.deliver(scheduler, kD1, Cluster::registration(Role::decode, 4, 64));
  for (uint64_t id = 1; id <= 2; ++id) {
    context.deliver(scheduler, kGateway, Cluster::ask(40, 4), {{id}, {}, 0, kNever});
  }
  CHECK(context.expect<Reserve>().message.tag_first == (1u << 30) - 4);
  CHECK(context.expect<Reserve>().message.tag_first == 0);
}

TEST_CASE("T71: no more reservations than decode has slots, and prefill window") {
  SchedulerOptions options = default_options();
  options.limits.prefill_window = 3;
  Cluster cluster(options);
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 2);
  for (uint64_t id = 1; id <= 6; ++id) cluster.admitted(id);
  CHECK(cluster.context.count<Reserve>() == 2);  // slots
  CHECK(cluster.scheduler.queued() == 4);
  cluster.join_decode(kD2, 4);
  CHECK(cluster.context.count<Reserve>() == 3);  // window
  CHECK(cluster.scheduler.queued() == 3);
}

TEST_CASE("T77: nothing is computed before decode holds all that the request needs") {
  Cluster cluster;
  cluster.form();
  cluster.admitted(1);
  CHECK(cluster.context.count<Run>() == 0);
  Cluster::Life life = cluster.reserving();
  CHECK(cluster.context.count<Run>() == 0);
  cluster.reserved(life);
  CHECK(cluster.context.count<Run>() == 1);
}

TEST_CASE("requests go to the instances that have the least to do") {
  Cluster cluster;
  cluster.form();
  cluster.join_prefill(kP2);
  cluster.join_decode(kD2);
  std::map<ActorId, int> sources, targets;
  for (uint64_t id = 1; id <= 4; ++id) {
    cluster.admitted(id);
    const Cluster::Life life = cluster.reserving();
    ++sources[life.source];
    ++targets[life.target];
  }
  CHECK(sources == std::map<ActorId, int>{{kP1, 2}, {kP2, 2}});
  CHECK(targets == std::map<ActorId, int>{{kD1, 2}, {kD2, 2}});
}

TEST_CASE("T3: Cancel is legal in every state, once and again, and frees everything") {
  for (const RequestState state : kLiveStates) {
    INFO(request_state_name(state));
    Cluster cluster;
    if (state != RequestState::queued) cluster.form();
    if (state == RequestState::queued) {
      cluster.join_prefill(kP1);
      cluster.join_decode(kD1, 1);
      cluster.reach(RequestState::decode, 99);
    }
    const Cluster::Life life = cluster.reach(state, 1);
    cluster.context.forget_sent();
    cluster.cancel(1);
    CHECK(cluster.ended(1));
    const auto failed = cluster.context.expect<Failed>(kGateway);
    CHECK(failed.message.refusal.code == ErrorCode::cancelled);
    CHECK(failed.envelope.request == RequestId{1});
    cluster.cancel(1);
    cluster.cancel(1, {5});
    CHECK(cluster.context.count<Failed>() == 0);
    CHECK(cluster.scheduler.counters().cancelled == 1);
    if (cluster.slots(LeaseState::quarantined) > 0) {
      if (state == RequestState::reserving) {
        cluster.say(kD1, life, ReserveRefused{life.transfer, {ErrorCode::cancelled, "", 0}});
      } else {
        cluster.slot_freed(life, Finish::cancelled);
      }
    }
    CHECK(cluster.slots(LeaseState::quarantined) == 0);
    CHECK(cluster.slots(LeaseState::reserved) == 0);
    CHECK(cluster.slots(LeaseState::active) == (state == RequestState::queued ? 1 : 0));
  }
}

TEST_CASE("T5, T13: a Cancel reaches both peers in the same turn") {
  for (const RequestState state : {RequestState::prefill, RequestState::transfer}) {
    Cluster cluster;
    cluster.form();
    const Cluster::Life life = cluster.reach(state, 1);
    cluster.cancel(1);
    const auto to_prefill = cluster.context.expect<Cancel>(kP1);
    CHECK(to_prefill.envelope.request == RequestId{1});
    CHECK(to_prefill.envelope.epoch == Epoch{1});
    CHECK(cluster.context.expect<Release>(kD1).message.transfer == life.transfer);
    CHECK(cluster.context.expect<Cancel>(kD1).envelope.request == RequestId{1});
    CHECK(cluster.slots(LeaseState::quarantined) == 1);
  }
  Cluster cluster;
  cluster.form();
  cluster.reach(RequestState::decode, 1);
  cluster.cancel(1);
  CHECK(cluster.context.count<Cancel>(kP1) == 0);  // its hold was freed by Adopted
  CHECK(cluster.context.count<Cancel>(kD1) == 1);
  CHECK(cluster.context.count<Release>() == 0);
}

TEST_CASE("T9, T14: a request cancelled between prefill and decode leaves nothing behind") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::transfer, 1);
  cluster.cancel(1);
  cluster.adopted(life);  // was under way
  CHECK(cluster.slots(LeaseState::quarantined) == 1);
  cluster.slot_freed(life, Finish::cancelled);
  CHECK(cluster.all_slots_free());
}

TEST_CASE("T12: the request behind a cancelled one runs as if alone") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 1);
  const Cluster::Life life = cluster.reach(RequestState::prefill, 1);
  cluster.admitted(2);
  CHECK(cluster.context.count<Reserve>() == 0);
  cluster.cancel(1);
  CHECK(cluster.context.count<Reserve>() == 0);  // the slot is in quarantine
  cluster.slot_freed(life, Finish::cancelled);
  Cluster::Life next = cluster.reserving();
  CHECK(next.request == RequestId{2});
  cluster.reserved(next);
  cluster.prefill_done(next);
  cluster.adopted(next);
  cluster.slot_freed(next);
  cluster.done(2);
  CHECK(cluster.scheduler.counters().finished == 1);
}

TEST_CASE("T18: a queued request that was cancelled never runs") {
  Cluster cluster;
  cluster.admit(1);
  CHECK(cluster.context.expect<AdmitRefused>().message.refusal.code == ErrorCode::unavailable);
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 1);
  const Cluster::Life first = cluster.reach(RequestState::decode, 1);
  cluster.admitted(2);
  cluster.cancel(2);
  cluster.slot_freed(first);
  CHECK(cluster.context.count<Reserve>() == 0);
}

TEST_CASE("a Cancel that overtakes its Admit is not lost") {
  Cluster cluster;
  cluster.form();
  cluster.cancel(1);
  cluster.admit(1);
  CHECK(cluster.context.expect<AdmitRefused>().message.refusal.code == ErrorCode::cancelled);
  CHECK(cluster.ended(1));
}

TEST_CASE("T62: a live request id is not given to another request, and the same one is confirmed") {
  Cluster cluster;
  cluster.form();
  cluster.admitted(1);
  cluster.admit(1);
  CHECK(cluster.context.expect<Admitted>().envelope.epoch == Epoch{1});
  CHECK(cluster.context.count<Reserve>() == 1);
  cluster.admit(1, Cluster::ask(21, 30));
  CHECK(cluster.context.expect<AdmitRefused>().message.refusal.code == ErrorCode::conflict);
  CHECK(cluster.scheduler.requests().size() == 1);
  cluster.admit(0);
  CHECK(cluster.context.expect<AdmitRefused>().message.refusal.code == ErrorCode::invalid_argument);
}

TEST_CASE("T63: two requests with the same prompt share no transfer, slot or tag") {
  Cluster cluster;
  cluster.form();
  Cluster::Life a = cluster.reach(RequestState::prefill, 1);
  const uint32_t tag = cluster.last_reserve.tag_first;
  Cluster::Life b = cluster.reach(RequestState::prefill, 2);
  CHECK(a.transfer != b.transfer);
  CHECK(cluster.last_reserve.tag_first >= tag + 2);
  // A word about one never moves the other.
  Cluster::Life mixed = a;
  mixed.transfer = b.transfer;
  cluster.prefill_done(mixed);
  CHECK(cluster.state_of(1) == RequestState::prefill);
  CHECK(cluster.state_of(2) == RequestState::prefill);
  CHECK(cluster.scheduler.counters().fenced_messages == 1);
}

TEST_CASE("T92: before both roles are there, Admit is refused and says why") {
  Cluster cluster;
  cluster.admit(1);
  const auto none = cluster.context.expect<AdmitRefused>();
  CHECK(none.message.refusal.code == ErrorCode::unavailable);
  CHECK(contains(none.message.refusal.text, "neither a prefill nor a decode instance"));
  CHECK(none.message.refusal.retry_after_ms > 0);
  cluster.join_prefill(kP1);
  cluster.admit(2);
  CHECK(contains(cluster.context.expect<AdmitRefused>().message.refusal.text,
                 "no decode instance is alive"));
  cluster.join_decode(kD1);
  cluster.admitted(3);
  CHECK(cluster.scheduler.counters().refused == 2);
}

TEST_CASE("T73: a prompt that no instance could hold is refused with both numbers") {
  Cluster cluster;
  cluster.join_prefill(kP1, 64);
  cluster.join_decode(kD1, 4, 10);
  cluster.admit(1, Cluster::ask(100, 61));
  const auto refused = cluster.context.expect<AdmitRefused>();
  CHECK(refused.message.refusal.code == ErrorCode::context_too_long);
  CHECK(contains(refused.message.refusal.text, "161"));
  CHECK(contains(refused.message.refusal.text, "160"));
  cluster.admitted(2, Cluster::ask(100, 60));
}

TEST_CASE("T74: a request that needs many blocks does not block the small ones behind it") {
  Cluster cluster;
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 8, 20);
  cluster.reach(RequestState::decode, 1, Cluster::ask(200, 10));  // 13 of 20 blocks
  cluster.admitted(2, Cluster::ask(150, 10));
  CHECK(cluster.context.count<Reserve>() == 0);
  cluster.admitted(3, Cluster::ask(20, 10));
  CHECK(cluster.reserving().request == RequestId{3});
  CHECK(cluster.state_of(2) == RequestState::queued);
}

TEST_CASE("a full queue refuses with busy and a time") {
  SchedulerOptions options = default_options();
  options.limits.queued_requests_max = 2;
  Cluster cluster(options);
  cluster.join_prefill(kP1);
  cluster.join_decode(kD1, 1);
  for (uint64_t id = 1; id <= 3; ++id) cluster.admitted(id);
  cluster.admit(4);
  const auto refused = cluster.context.expect<AdmitRefused>();
  CHECK(refused.message.refusal.code == ErrorCode::busy);
  CHECK(refused.message.refusal.retry_after_ms >= 1);
  CHECK(cluster.scheduler.queued() == 2);
}

TEST_CASE("Done ends a request in every state, with its outcome") {
  for (const RequestState state : kLiveStates) {
    for (const Finish outcome : {Finish::stop, Finish::length, Finish::error}) {
      INFO(request_state_name(state));
      Cluster cluster;
      cluster.join_prefill(kP1);
      cluster.join_decode(kD1, 1);
      if (state == RequestState::queued) cluster.reach(RequestState::decode, 99);
      cluster.reach(state, 1);
      cluster.context.forget_sent();
      cluster.done(1, {1}, outcome);
      CHECK(cluster.context.expect<DoneAck>(kGateway).envelope.request == RequestId{1});
      CHECK(cluster.context.count<Failed>() == 0);
      CHECK(cluster.ended(1));
      const bool failed = outcome == Finish::error;
      CHECK(cluster.scheduler.counters().finished == (failed ? 0 : 1));
      CHECK(cluster.scheduler.counters().failed == (failed ? 1 : 0));
      const bool at_decode = state == RequestState::decode || state == RequestState::prefill ||
                             state == RequestState::transfer;
      CHECK(cluster.context.count<Cancel>(kD1) == (at_decode ? 1 : 0));
    }
  }
}

TEST_CASE("a Done for a request that is not known is answered, so that the gateway can forget") {
  Cluster cluster;
  cluster.form();
  cluster.done(77);
  CHECK(cluster.context.count<DoneAck>() == 1);
  CHECK(cluster.scheduler.counters().dropped_messages == 1);
}

TEST_CASE("T93: the status counts what is there and never less than nothing") {
  Cluster cluster;
  cluster.form();
  cluster.reach(RequestState::decode, 1);
  cluster.reach(RequestState::prefill, 2);
  cluster.cancel(2);
  cluster.cancel(2);
  cluster.deliver(kGateway, ClusterQuery{}, {{}, {}, 42, kNever});
  const auto reply = cluster.context.expect<ClusterReply>(kGateway);
  CHECK(reply.envelope.correlation == 42);
  REQUIRE(reply.message.workers.size() == 2);
  CHECK(reply.message.workers[0].rank == 1);
  CHECK(reply.message.workers[0].role == Role::prefill);
  CHECK(reply.message.workers[1].capacity.slots == 4);
  CHECK(reply.message.workers[1].alive);
  uint64_t live = 0;
  for (const NamedCount& count : reply.message.requests) live += count.value;
  CHECK(live == 1);
  const std::vector<uint64_t> leases = {2, 0, 1, 1};
  REQUIRE(reply.message.leases.size() == 4);
  for (size_t i = 0; i < 4; ++i) CHECK(reply.message.leases[i].value == leases[i]);
  CHECK(counter(reply.message, "admitted") == 2);
  CHECK(counter(reply.message, "cancelled") == 1);
  CHECK(counter(reply.message, "dropped_messages") == 1);
}

TEST_CASE("draining takes nothing new, lets the running end, then empties the workers") {
  Cluster cluster;
  cluster.form();
  const Cluster::Life life = cluster.reach(RequestState::decode, 1);
  const ActorId host{0, 5, 1};
  cluster.deliver(host, Drain{}, {{}, {}, 9, kNever});
  cluster.admit(2);
  CHECK(contains(cluster.context.expect<AdmitRefused>().message.refusal.text, "shutting down"));
  cluster.pass(kSecond);
  CHECK(cluster.context.count<Drain>() == 0);
  cluster.slot_freed(life);
  cluster.done(1);
  cluster.pass(kSecond);
  CHECK(cluster.context.count<Drain>(kP1) == 1);
  CHECK(cluster.context.count<Drain>(kD1) == 1);
  CHECK(cluster.context.count<Drained>() == 0);
  cluster.deliver(kP1, Drained{});
  cluster.deliver(kD1, Drained{});
  CHECK(cluster.context.expect<Drained>(host).envelope.correlation == 9);
}

TEST_CASE("what still runs when the drain time is over is failed, each with one word") {
  SchedulerOptions options = default_options();
  options.limits.drain_us = 3 * kSecond;
  Cluster cluster(options);
  cluster.form();
  cluster.reach(RequestState::decode, 1);
  cluster.deliver(ActorId{0, 5, 1}, Drain{});
  cluster.pass(2 * kSecond);
  CHECK(cluster.context.count<Failed>() == 0);
  cluster.pass(2 * kSecond);
  CHECK(cluster.context.expect<Failed>().message.refusal.code == ErrorCode::unavailable);
  CHECK(cluster.context.count<Drained>() == 1);
}
