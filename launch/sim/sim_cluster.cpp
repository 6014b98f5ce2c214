#include "launch/sim/sim_cluster.h"

#include <utility>

namespace baton {
namespace {

std::shared_ptr<const ModelText> make_text(const FakeModel& model) {
  return std::make_shared<const ModelText>(
      ModelText{Tokenizer::of_bytes({"<end>"}), std::nullopt, {model.eos}});
}

}  // namespace

SimCluster::SimCluster(uint64_t seed, const SwarmPlan& plan, SimClusterHooks hooks)
    : plan_(plan),
      hooks_(std::move(hooks)),
      text_(make_text(model_)),
      world_({seed, plan.limits, hooks_.trace}),
      network_(world_),
      switch_(world_, network_),
      fabric_(world_) {
  network_.set_faults(plan_.chaos.network);
  fabric_.set_faults(plan_.chaos.fabric);
  uint32_t rank = 0;
  world_.add_host(rank++, [this](SimHost& host) {
    boot_control(host);
    if (!plan_.alone) return;
    boot_worker(host, true);
    boot_worker(host, false);
  });
  if (plan_.alone) {
    prefill_ranks_ = decode_ranks_ = {0};
    return;
  }
  for (uint32_t i = 0; i < plan_.prefill_ranks; ++i) prefill_ranks_.push_back(rank++);
  for (uint32_t i = 0; i < plan_.decode_ranks; ++i) decode_ranks_.push_back(rank++);
  for (uint32_t worker : prefill_ranks_) {
    world_.add_host(worker, [this](SimHost& host) { boot_worker(host, true); });
  }
  for (uint32_t worker : decode_ranks_) {
    world_.add_host(worker, [this](SimHost& host) { boot_worker(host, false); });
  }
}

SimCluster::~SimCluster() {
  world_.end();
}

template <class A, class Options>
ActorFactory SimCluster::factory(uint32_t rank, uint32_t slot, const Options& options) {
  return [this, rank, slot, options] {
    auto actor = std::make_unique<A>(options);
    actors_[{rank, slot}] = actor.get();
    return wrap(rank, slot, std::move(actor));
  };
}

std::unique_ptr<Actor> SimCluster::wrap(uint32_t rank, uint32_t slot,
                                        std::unique_ptr<Actor> actor) const {
  if (!hooks_.sabotage) return actor;
  auto [hears, says] = hooks_.sabotage(rank, slot);
  if (!hears && !says) return actor;
  return std::make_unique<Saboteur>(std::move(actor), std::move(hears), std::move(says));
}

void SimCluster::boot_control(SimHost& host) {
  host.set_pace(plan_.handler_us_max);
  SimLink& link = host.own<SimLink>(switch_, host);
  host.set_control_link(&link);
  host.set_client_sink(hooks_.to_client);

  GatewayOptions gateway;
  gateway.limits = plan_.limits;
  gateway.text = text_;
  gateway.context_max = plan_.context_max;
  gateway.vocabulary = model_.vocabulary;
  gateway.model = "fake";
  gateway.version = "sim";
  gateway.workers = &host.workers();
  host.add_actor(kGatewaySlot, factory<Gateway>(host.rank(), kGatewaySlot, gateway));

  SchedulerOptions scheduler;
  scheduler.limits = plan_.limits;
  scheduler.limits.queued_requests_max += plan_.scheduler_queue_extra;
  scheduler.boot_epoch = host.life();
  scheduler.link = &link;
  host.add_actor(kSchedulerSlot, factory<Scheduler>(host.rank(), kSchedulerSlot, scheduler));
}

FakeEngineOptions SimCluster::engine_options(SimHost& host, bool prefill, const SimMover*& mover) {
  FakeEngineOptions engine;
  engine.model = model_;
  engine.block_count = prefill ? plan_.prefill_blocks : plan_.decode_blocks;
  engine.step_tokens_max = plan_.step_tokens_max;
  engine.context_max = plan_.context_max;
  engine.later = [&host](Micros delay, std::function<void()> task) {
    host.later(delay, std::move(task));
  };
  engine.post = [&host](Mail mail) { host.post(std::move(mail)); };
  engine.duration = [this](const Batch&) {
    return world_.random().between(plan_.step_us_max / 10 + 1, plan_.step_us_max);
  };
  engine.change = hooks_.change_batch;
  engine.watch = [this, &mover](const Batch& batch) {
    if (hooks_.watch_step) hooks_.watch_step(*mover, batch);
  };
  return engine;
}

void SimCluster::boot_worker(SimHost& host, bool prefill) {
  if (!plan_.alone) {
    host.set_pace(plan_.handler_us_max);
    host.set_control_link(&host.own<SimLink>(switch_, host));
  }
  const SimMover*& here = movers_[{host.rank(), prefill ? kPrefillSlot : kDecodeSlot}];
  FakeEngine& engine = host.own<FakeEngine>(engine_options(host, prefill, here));
  SimMover::Options moving;
  moving.pieces_max = plan_.pieces_max;
  SimMover& mover = host.own<SimMover>(fabric_, host, store_of(engine), moving);
  here = &mover;
  if (prefill) {
    PrefillOptions options;
    options.limits = plan_.limits;
    options.instance = {host.rank()};
    options.engine = &engine;
    options.mover = &mover;
    options.pack_policy = plan_.pack_policy;
    options.chunking = plan_.chunking;
    options.host = "sim";
    host.add_actor(kPrefillSlot, factory<Prefill>(host.rank(), kPrefillSlot, options));
  } else {
    DecodeOptions options;
    options.limits = plan_.limits;
    options.instance = {host.rank()};
    options.engine = &engine;
    options.mover = &mover;
    options.catch_up_tokens = plan_.catch_up_tokens;
    options.min_decode_steps = plan_.min_decode_steps;
    options.host = "sim";
    host.add_actor(kDecodeSlot, factory<Decode>(host.rank(), kDecodeSlot, options));
  }
}

std::vector<uint32_t> SimCluster::worker_ranks() const {
  if (plan_.alone) return {};
  std::vector<uint32_t> ranks = prefill_ranks_;
  ranks.insert(ranks.end(), decode_ranks_.begin(), decode_ranks_.end());
  return ranks;
}

const Actor* SimCluster::living(uint32_t rank, uint32_t slot) const {
  const auto found = actors_.find({rank, slot});
  if (found == actors_.end() || !world_.is_up(rank)) return nullptr;
  return world_.host(rank).supervisor().actor(slot) ? found->second : nullptr;
}

const Gateway* SimCluster::gateway() const {
  return static_cast<const Gateway*>(living(0, kGatewaySlot));
}
const Scheduler* SimCluster::scheduler() const {
  return static_cast<const Scheduler*>(living(0, kSchedulerSlot));
}
const Prefill* SimCluster::prefill(uint32_t rank) const {
  return static_cast<const Prefill*>(living(rank, kPrefillSlot));
}
const Decode* SimCluster::decode(uint32_t rank) const {
  return static_cast<const Decode*>(living(rank, kDecodeSlot));
}

const SimMover* SimCluster::decode_mover(uint32_t rank) const {
  return movers_.at({rank, kDecodeSlot});
}

bool SimCluster::all_joined() const {
  for (uint32_t rank : prefill_ranks_) {
    const Prefill* actor = prefill(rank);
    if (!actor || !actor->joining().joined()) return false;
  }
  for (uint32_t rank : decode_ranks_) {
    const Decode* actor = decode(rank);
    if (!actor || !actor->joining().joined()) return false;
  }
  return true;
}

}  // namespace baton
