#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "actors/scheduler/scheduler.h"
#include "runtime/base/log.h"

#include "tests/unit/actors/fake_context.h"

namespace baton::test {

inline const ActorId kGateway{0, kGatewaySlot, 1};
inline const ActorId kP1{1, kPrefillSlot, 1};
inline const ActorId kD1{2, kDecodeSlot, 1};
inline const ActorId kD2{3, kDecodeSlot, 1};
inline const ActorId kP2{4, kPrefillSlot, 1};

inline SchedulerOptions default_options() {
  SchedulerOptions options;
  options.boot_epoch = 7;
  options.limits.prefill_window = 4;
  options.limits.piece_bytes_max = 1024;  // a block of small_geometry(): a tag for each
  return options;
}

inline KvGeometry small_geometry() {
  KvGeometry geometry;
  geometry.layers = 2;
  geometry.kv_heads = 1;
  geometry.head_dim = 8;
  geometry.block_tokens = 16;
  return geometry;
}

// One scheduler, and the test in the place of the gateway and of all workers. What the workers
// hold is followed here, so that a test says only what happens.
class Cluster {
 public:
  // Where one request is, as its workers know it.
  struct Life {
    RequestId request;
    Epoch epoch;
    TransferId transfer;
    ActorId source;
    ActorId target;
    SlotLease slot;
  };

  explicit Cluster(SchedulerOptions options = default_options())
      : context({0, kSchedulerSlot, 1}), scheduler(std::move(options)) {
    LogOptions quiet;
    quiet.level = LogLevel::error;
    log_open(quiet);
    scheduler.start(context);
  }

  FakeContext context;
  Scheduler scheduler;
  std::set<ActorId> alive;

  // ---- membership
  static Register registration(Role role, uint32_t slots, uint32_t blocks) {
    Register info;
    info.role = role;
    info.host = "node";
    info.numerics_id = 5;
    info.model_hash = 99;
    info.weights_version = kFirstWeights;
    info.weights = {{kFirstWeights, 99, true, {}}};
    info.geometry = small_geometry();
    info.placement = single_rank_placement(info.geometry);
    info.capacity = {role == Role::decode ? slots : 0, blocks, 512, 256};
    return info;
  }
  void join_prefill(ActorId who, uint32_t blocks = 64) {
    join(who, registration(Role::prefill, 0, blocks));
  }
  void join_decode(ActorId who, uint32_t slots = 4, uint32_t blocks = 64) {
    join(who, registration(Role::decode, slots, blocks));
  }
  void join(ActorId who, const Register& info) {
    deliver(who, info);
    REQUIRE(context.take<Welcome>(who));
    alive.insert(who);
    slots_free_[who] = info.capacity.slots;
    blocks_free_[who] = info.capacity.blocks;
    agree();
  }
  // Every worker that was asked agrees to the plans of its pairs.
  void agree() {
    while (const auto asked = context.take<Connect>()) {
      last_connect = asked->message;
      deliver(asked->envelope.to, Connected{asked->message.pair, asked->message.plan.digest});
    }
  }
  // One prefill, one decode instance.
  void form() {
    join_prefill(kP1);
    join_decode(kD1);
  }
  void beat(ActorId who) {
    Beat message;
    message.seq = ++beats_[who];
    message.echo = echoes_[who];
    message.step = steps[who];
    message.slots_free = slots_free_[who];
    message.blocks_free = blocks_free_[who];
    deliver(who, message);
    if (const auto ack = context.take<BeatAck>(who)) echoes_[who] = ack->message.seq;
  }
  std::map<ActorId, uint64_t> steps;

  // Time passes and everybody in `alive` beats.
  void pass(Micros duration) {
    while (duration > 0) {
      const Micros step = std::min<Micros>(duration, 250 * kMillisecond);
      for (const ActorId who : alive) beat(who);
      context.advance(scheduler, step);
      duration -= step;
    }
  }

  // ---- requests
  static Admit ask(size_t prompt = 20, uint32_t max_tokens = 30) {
    Admit admit;
    for (size_t i = 0; i < prompt; ++i) admit.ids.push_back(static_cast<TokenId>(i));
    admit.stops.max_tokens = max_tokens;
    admit.sampling.seed = 3;
    return admit;
  }
  void admit(uint64_t id, const Admit& what = ask(), Micros remaining = kNever,
             ActorId gateway = kGateway) {
    deliver(gateway, what, {{id}, {}, 0, remaining});
  }
  void admitted(uint64_t id, const Admit& what = ask()) {
    admit(id, what);
    REQUIRE(context.take<Admitted>());
  }
  // The Reserve that was sent; the decode actor has not answered yet.
  Life reserving() {
    const Sent<Reserve> sent = context.expect<Reserve>();
    Life life;
    life.request = sent.envelope.request;
    life.epoch = sent.envelope.epoch;
    life.transfer = sent.message.transfer;
    life.source = sent.message.source;
    life.target = sent.envelope.to;
    last_reserve = sent.message;
    return life;
  }
  Connect last_connect;
  Reserve last_reserve;
  Run last_run;

  void reserved(Life& life, uint32_t hit_tokens = 0, bool local = false) {
    life.slot = {{next_slot_[life.target]++ % 64}, {++last_generation_}};
    Reserved message;
    message.transfer = life.transfer;
    message.slots = {life.slot};
    const uint32_t blocks = small_geometry().blocks_for(last_reserve.tokens);
    for (uint32_t i = 0; i < blocks; ++i) message.blocks.push_back({i});
    message.hit_tokens = hit_tokens;
    message.local = local;
    message.blocks_held = small_geometry().blocks_for(last_reserve.tokens + 1);
    --slots_free_[life.target];
    blocks_free_[life.target] -= message.blocks_held;
    held_[life.slot] = message.blocks_held;
    say(life.target, life, message);
  }
  void prefill_done(const Life& life, Finish finish = Finish::none) {
    Usage usage;
    usage.prefill_us = 1234;
    say(life.source, life, PrefillDone{life.transfer, usage, finish});
  }
  void adopted(const Life& life) { say(life.target, life, Adopted{life.transfer, Usage{}}); }
  void slot_freed(const Life& life, Finish finish = Finish::stop) {
    ++slots_free_[life.target];
    blocks_free_[life.target] += held_[life.slot];
    SlotFreed message;
    message.slot = life.slot;
    message.slots_free = slots_free_[life.target];
    message.blocks_free = blocks_free_[life.target];
    message.finish = finish;
    say(life.target, life, message);
  }
  void frozen(uint64_t id, Epoch epoch, std::vector<TokenId> committed, bool complete = false) {
    deliver(kGateway, Frozen{{std::move(committed)}, complete}, {{id}, epoch, 0, kNever});
  }
  void done(uint64_t id, Epoch epoch = {1}, Finish outcome = Finish::stop) {
    deliver(kGateway, Done{outcome, 3}, {{id}, epoch, 0, kNever});
  }
  void cancel(uint64_t id, Epoch epoch = {1}) {
    deliver(kGateway, Cancel{}, {{id}, epoch, 0, kNever});
  }

  // Brings a new request as far as `state` on its straight path, or to FREEZING by a preemption.
  Life reach(RequestState state, uint64_t id, const Admit& what = ask()) {
    admitted(id, what);
    if (state == RequestState::queued) return {{id}, {1}, {}, {}, {}, {}};
    Life life = reserving();
    if (state == RequestState::reserving) return life;
    reserved(life);
    last_run = context.expect<Run>().message;
    if (state == RequestState::prefill) return life;
    prefill_done(life);
    if (state == RequestState::transfer) return life;
    adopted(life);
    if (state == RequestState::decode) return life;
    if (state == RequestState::freezing) {
      say(life.target, life, Preempted{life.slot});
      slot_freed(life, Finish::none);
      return life;
    }
    slot_freed(life);
    return life;
  }
  RequestState state_of(uint64_t id) {
    const LedgerRow* row = const_cast<LiveRequests&>(scheduler.requests()).find({id});
    REQUIRE_MESSAGE(row != nullptr, "the request has ended");
    return row->state;
  }
  bool ended(uint64_t id) {
    return const_cast<LiveRequests&>(scheduler.requests()).find({id}) == nullptr;
  }
  uint64_t slots(LeaseState state) const {
    return scheduler.leases().slots_by_state()[static_cast<size_t>(state)];
  }
  bool all_slots_free() const {
    return slots(LeaseState::reserved) + slots(LeaseState::active) +
               slots(LeaseState::quarantined) ==
           0;
  }

  template <Message M>
  void say(ActorId who, const Life& life, const M& message) {
    deliver(who, message, {life.request, life.epoch, 0, kNever});
  }
  template <Message M>
  void deliver(ActorId who, const M& message, const Routing& routing = {}) {
    REQUIRE(context.deliver(scheduler, who, message, routing));
  }

 private:
  std::map<ActorId, uint32_t> slots_free_;
  std::map<ActorId, uint32_t> blocks_free_;
  std::map<ActorId, uint32_t> next_slot_;
  std::map<SlotLease, uint32_t> held_;
  std::map<ActorId, uint64_t> beats_;
  std::map<ActorId, uint64_t> echoes_;
  uint32_t last_generation_ = 0;
};

}  // namespace baton::test
