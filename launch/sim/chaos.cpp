#include "launch/sim/chaos.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr Micros kCutUsMin = 300 * kMillisecond;
constexpr Micros kStallUsMin = 10 * kMillisecond;
constexpr Micros kDownUsMax = 3 * kSecond;
constexpr int kFailuresAlone = 2;

}  // namespace

Chaos::Chaos(SimCluster& cluster)
    : cluster_(cluster), world_(cluster.world()), plan_(cluster.plan().chaos) {}

void Chaos::start() {
  active_ = true;
  repeat(plan_.cuts, [this] { cut(); });
  repeat(plan_.clogs, [this] { clog(); });
  if (!cluster_.plan().alone) {
    repeat(plan_.crashes, [this] { crash(); });
    repeat(plan_.stalls, [this] { stall(random_worker()); });
  }
  repeat(plan_.control_stalls, [this] { stall(0); });
  repeat(plan_.actor_failures, [this] { fail_actor(); });
  resurrect();
  world_.set_interference([this](const Mail& mail) { return meddle(mail); });
}

void Chaos::stop() {
  active_ = false;
  world_.set_interference({});
  cluster_.network().heal();
  cluster_.fabric().set_faults({});
  world_.note("all is healed");
  for (uint32_t rank : cluster_.worker_ranks()) {
    if (!world_.is_up(rank)) world_.restart(rank);
  }
}

void Chaos::repeat(double per_second, std::function<void()> fault) {
  if (per_second <= 0) return;
  const auto mean_us = static_cast<Micros>(static_cast<double>(kSecond) / per_second);
  world_.at(world_.random().between(1, 2 * mean_us), [this, per_second, fault] {
    if (!active_) return;
    fault();
    repeat(per_second, fault);
  });
}

uint32_t Chaos::random_worker() {
  const std::vector<uint32_t> ranks = cluster_.worker_ranks();
  return ranks[world_.random().below(ranks.size())];
}

uint32_t Chaos::random_rank() {
  return static_cast<uint32_t>(world_.random().below(cluster_.worker_ranks().size() + 1));
}

void Chaos::cut() {
  const uint32_t source = random_rank();
  const uint32_t target = random_rank();
  if (source == target) return;
  ++counts_.cuts;
  const Micros duration = world_.random().between(kCutUsMin, std::max(kCutUsMin, plan_.cut_us_max));
  cluster_.network().cut(source, target, duration);
  if (world_.random().chance(0.5)) cluster_.network().cut(target, source, duration);
}

void Chaos::clog() {
  const uint32_t source = random_rank();
  const uint32_t target = random_rank();
  if (source == target) return;
  cluster_.network().clog(source, target, world_.random().between(1, plan_.cut_us_max));
}

void Chaos::crash() {
  const uint32_t rank = random_worker();
  if (!world_.is_up(rank)) return;
  ++counts_.crashes;
  world_.crash(rank);
  restart_later(rank);
}

void Chaos::restart_later(uint32_t rank) {
  world_.at(world_.random().between(50 * kMillisecond, kDownUsMax), [this, rank] {
    if (!world_.is_up(rank)) world_.restart(rank);
  });
}

// What a cluster manager does with processes that ended because an actor failed too often.
void Chaos::resurrect() {
  for (uint32_t rank : cluster_.worker_ranks()) {
    if (!world_.is_up(rank)) restart_later(rank);
  }
  world_.at(kDownUsMax, [this] { resurrect(); });
}

void Chaos::stall(uint32_t rank) {
  if (!world_.is_up(rank)) return;
  ++counts_.stalls;
  world_.stall(rank,
               world_.random().between(kStallUsMin, std::max(kStallUsMin, plan_.stall_us_max)));
}

void Chaos::fail_actor() {
  const bool alone = cluster_.plan().alone;
  const uint32_t rank = alone ? 0 : random_worker();
  if (!world_.is_up(rank) || world_.is_stalled(rank)) return;
  std::vector<uint32_t> slots = world_.host(rank).supervisor().slots();
  std::erase_if(slots, [](uint32_t slot) { return slot != kPrefillSlot && slot != kDecodeSlot; });
  // Rank 0 may not end: an actor that fails too often takes its process along.
  if (alone && ++failures_alone_ > kFailuresAlone) return;
  ++counts_.failures;
  world_.fail_actor(rank, slots[world_.random().below(slots.size())], "the simulator broke it");
}

Interference Chaos::meddle(const Mail& mail) {
  const uint32_t rank = mail.envelope.to.rank;
  if (rank == 0) return Interference::none;
  if (plan_.fail_at_message > 0 && world_.random().chance(plan_.fail_at_message)) {
    ++counts_.failures;
    return Interference::fail_actor;
  }
  if (plan_.crash_at_message > 0 && world_.random().chance(plan_.crash_at_message)) {
    ++counts_.crashes;
    restart_later(rank);
    return Interference::crash_process;
  }
  return Interference::none;
}

}  // namespace baton
