#include "tests/unit/actors/scheduler/cluster.h"

namespace baton::test {
namespace {

Admit several(uint32_t n, uint32_t max_tokens = 30) {
  Admit admit = Cluster::ask(20, max_tokens);
  admit.n = n;
  return admit;
}

// The slots of a reservation, as a decode actor names them.
std::vector<SlotLease> grant(Cluster& cluster, const Cluster::Life& life, uint32_t generation = 1) {
  Reserved message;
  message.transfer = life.transfer;
  for (uint32_t i = 0; i < cluster.last_reserve.n; ++i) {
    message.slots.push_back({{i}, {generation}});
  }
  message.blocks = {{0}, {1}};
  message.blocks_held = 2 + cluster.last_reserve.n - 1;
  cluster.say(life.target, life, message);
  return message.slots;
}

void free_slot(Cluster& cluster, const Cluster::Life& life, SlotLease slot, uint32_t choice,
               uint32_t slots_free, Finish finish = Finish::stop) {
  cluster.say(life.target, life, SlotFreed{slot, choice, slots_free, 64, finish});
}

// A request of several choices that runs on kD1.
Cluster::Life run(Cluster& cluster, uint32_t n, std::vector<SlotLease>& slots) {
  cluster.form();
  cluster.admitted(1, several(n));
  const Cluster::Life life = cluster.reserving();
  slots = grant(cluster, life);
  cluster.last_run = cluster.context.expect<Run>().message;
  cluster.prefill_done(life);
  cluster.adopted(life);
  REQUIRE(cluster.state_of(1) == RequestState::decode);
  return life;
}

void freeze(Cluster& cluster, Frozen frozen, uint32_t epoch) {
  cluster.context.expect<Freeze>(kGateway);
  cluster.deliver(kGateway, frozen, {{1}, Epoch{epoch}, 0, kNever});
}

}  // namespace

TEST_CASE("T60: a request holds a slot per choice until the last of them is free") {
  Cluster cluster;
  std::vector<SlotLease> slots;
  const Cluster::Life life = run(cluster, 3, slots);
  CHECK(cluster.last_reserve.n == 3);
  CHECK(cluster.last_reserve.tokens == 20);
  CHECK(cluster.last_reserve.own_tokens == 0);
  CHECK(cluster.last_run.choices == std::vector<uint32_t>{0, 1, 2});
  CHECK(cluster.last_run.committed.size() == 3);
  CHECK(cluster.slots(LeaseState::active) == 3);
  free_slot(cluster, life, slots[1], 1, 2);
  free_slot(cluster, life, slots[1], 1, 2);  // said twice: credited once
  CHECK(cluster.state_of(1) == RequestState::decode);
  CHECK(cluster.slots(LeaseState::active) == 2);
  free_slot(cluster, life, slots[0], 0, 3);
  CHECK(cluster.state_of(1) == RequestState::decode);
  free_slot(cluster, life, slots[2], 2, 4, Finish::length);
  CHECK(cluster.state_of(1) == RequestState::closing);
  CHECK(cluster.all_slots_free());
  cluster.done(1);
  CHECK(cluster.ended(1));
}

TEST_CASE("T64, T65: after a death only the choices that have not ended run again") {
  Cluster cluster;
  std::vector<SlotLease> slots;
  run(cluster, 4, slots);
  cluster.join_decode(kD2);
  cluster.alive.erase(kD1);
  cluster.pass(4 * kSecond);
  freeze(cluster, {{{1, 2, 3}, {4}, {}, {5, 6}}, false, {1}}, 2);
  Cluster::Life life = cluster.reserving();
  CHECK(life.target == kD2);
  CHECK(cluster.last_reserve.n == 3);
  CHECK(cluster.last_reserve.tokens == 20);  // the prompt alone: they share its blocks
  CHECK(cluster.last_reserve.own_tokens == 3);
  CHECK(cluster.last_reserve.new_tokens == 30);
  grant(cluster, life, 2);
  const Run again = cluster.context.expect<Run>().message;
  CHECK(again.choices == std::vector<uint32_t>{0, 2, 3});
  CHECK(again.committed == std::vector<std::vector<TokenId>>{{1, 2, 3}, {}, {5, 6}});
  CHECK(again.ids.size() == 20);

  // The last one of several that is left is continued like a request of one choice.
  cluster.say(life.source, life,
              PrefillFailed{life.transfer, {ErrorCode::internal, "no", 0}, true});
  freeze(cluster, {{{1, 2, 3, 9}, {4}, {8}, {5, 6}}, false, {0, 1, 2}}, 3);
  cluster.pass(kSecond);
  life = cluster.reserving();
  CHECK(cluster.last_reserve.n == 1);
  CHECK(cluster.last_reserve.tokens == 22);
  CHECK(cluster.last_reserve.own_tokens == 0);
  CHECK(cluster.last_reserve.new_tokens == 28);
  grant(cluster, life, 3);
  const Run last = cluster.context.expect<Run>().message;
  CHECK(last.choices == std::vector<uint32_t>{3});
  CHECK(last.committed == std::vector<std::vector<TokenId>>{{5, 6}});
}

TEST_CASE("choices that all have ended need no further life, whatever the gateway calls it") {
  Cluster cluster;
  std::vector<SlotLease> slots;
  const Cluster::Life life = run(cluster, 2, slots);
  cluster.say(life.target, life, Preempted{slots[0]});
  freeze(cluster, {{{1}, {2}}, false, {0, 1}}, 2);
  CHECK(cluster.state_of(1) == RequestState::closing);
  free_slot(cluster, life, slots[0], 0, 3, Finish::none);
  free_slot(cluster, life, slots[1], 1, 4, Finish::none);
  CHECK(cluster.all_slots_free());
}

TEST_CASE("T60: n beyond the slots of any decode instance is refused with both numbers") {
  Cluster cluster;
  cluster.form();
  cluster.admit(1, several(5));
  const Refusal refusal = cluster.context.expect<AdmitRefused>().message.refusal;
  CHECK(refusal.code == ErrorCode::invalid_argument);
  CHECK(refusal.text.find("n is 5") != std::string::npos);
  CHECK(refusal.text.find("4 slots") != std::string::npos);
}

TEST_CASE("T80: more choices than the pool holds at once are placed on an empty instance") {
  Cluster cluster;
  cluster.join_prefill(kP1, 8);
  cluster.join_decode(kD1, 8, 4);  // 64 positions
  Admit admit = several(8);
  cluster.admitted(1, admit);
  cluster.reserving();
  CHECK(cluster.last_reserve.n == 8);
}

}  // namespace baton::test
