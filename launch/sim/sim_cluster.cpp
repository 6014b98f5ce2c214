#include "launch/sim/sim_cluster.h"

#include <algorithm>
#include <utility>

#include "launch/sim/sim_updates.h"
#include "runtime/base/check.h"
#include "runtime/layout/transfer.h"

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
  uint32_t rank = 1;
  if (plan_.alone) {
    prefill_ranks_ = decode_ranks_ = {0};
  } else {
    for (uint32_t i = 0; i < plan_.prefill_ranks; ++i) prefill_ranks_.push_back(rank++);
    for (uint32_t i = 0; i < plan_.decode_ranks; ++i) decode_ranks_.push_back(rank++);
  }
  world_.add_host(0, [this](SimHost& host) {
    boot_control(host);
    if (!plan_.alone) return;
    boot_worker(host, true);
    boot_worker(host, false);
  });
  if (plan_.alone) return;
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
  scheduler.prefix_cache = plan_.prefix_cache;
  scheduler.local_prefill = plan_.local_prefill;
  scheduler.link = &link;
  host.add_actor(kSchedulerSlot, factory<Scheduler>(host.rank(), kSchedulerSlot, scheduler));
}

Placement SimCluster::placement_of(uint32_t rank, bool prefill) const {
  const std::vector<uint32_t>& ranks = prefill ? prefill_ranks_ : decode_ranks_;
  const std::vector<SwarmLayout>& layouts = prefill ? plan_.prefill_layouts : plan_.decode_layouts;
  const auto index =
      static_cast<size_t>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
  const SwarmLayout layout = index < layouts.size() ? layouts[index] : SwarmLayout{};
  PlacementOptions options;
  options.shape = model_.shape;
  options.query_heads = model_.query_heads;
  options.tensor_parallel = layout.tensor_parallel;
  options.pipeline_parallel = layout.pipeline_parallel;
  options.block_tokens = layout.block_tokens;
  options.dtype = layout.dtype;
  const Result<Placement> placement = make_placement(options);
  CHECK_MSG(placement.ok(), "the plan draws layouts that the fake model has");
  return *placement;
}

// The plan counts blocks of 16 tokens; a pool of larger ones holds about as many tokens, and always
// a whole context and a block more, as that of small ones does.
uint32_t SimCluster::blocks_of(const Placement& placement, bool prefill) const {
  const uint32_t small = prefill ? plan_.prefill_blocks : plan_.decode_blocks;
  const KvGeometry geometry = placement.geometry(0);
  return std::max(geometry.blocks_for(uint64_t{small} * 16),
                  geometry.blocks_for(plan_.context_max) + 1);
}

// As many as the plan says, but no fewer than one transfer may need.
size_t SimCluster::pieces_max() const {
  size_t most = plan_.pieces_max;
  for (const uint32_t source : prefill_ranks_) {
    for (const uint32_t target : decode_ranks_) {
      const Result<Plan> plan =
          plan_reshard(placement_of(source, true), placement_of(target, false));
      const RoutedPlan routed =
          route_plan(*plan, {static_cast<uint32_t>(plan_.limits.kv_layer_groups),
                             plan_.limits.piece_bytes_max, true});
      most = std::max<size_t>(most, baton::pieces_max(routed, plan_.context_max));
    }
  }
  return most;
}

FakeEngineOptions SimCluster::engine_options(SimHost& host, bool prefill, const SimMover*& mover) {
  FakeEngineOptions engine;
  engine.model = model_;
  engine.placement = placement_of(host.rank(), prefill);
  engine.block_count = blocks_of(engine.placement, prefill);
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
  engine.open_weights = [rank = host.rank()](const WeightsSource& source) {
    return open_sim_weights(source, rank);
  };
  engine.prepare_duration = [this] {
    return world_.random().between(1, std::max<Micros>(plan_.updates.prepare_us_max, 1));
  };
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
  engines_[{host.rank(), prefill ? kPrefillSlot : kDecodeSlot}] = &engine;
  SimMover::Options moving;
  moving.pieces_max = pieces_max();
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

const FakeEngine* SimCluster::engine(ActorId worker) const {
  if (!living(worker.rank, worker.slot)) return nullptr;
  const SimHost& host = world_.host(worker.rank);
  if (host.supervisor().incarnation(worker.slot) != worker.incarnation) return nullptr;
  return engines_.at({worker.rank, worker.slot});
}

ActorId SimCluster::life(uint32_t rank, uint32_t slot) const {
  return {rank, slot, world_.host(rank).supervisor().incarnation(slot)};
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
  return scheduler() && scheduler()->pairs().open() == 0 &&
         scheduler()->members().live().size() == prefill_ranks_.size() + decode_ranks_.size();
}

}  // namespace baton
