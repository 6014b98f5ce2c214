#include "actors/scheduler/membership.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr Micros kFirstPause = 100 * kMillisecond;
constexpr Micros kLongestPause = 10 * kSecond;

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string in_ms(Micros duration) {
  return std::to_string(duration / kMillisecond) + " ms";
}

Refusal refusal(ErrorCode code, std::string text) {
  return {code, std::move(text), 0};
}

std::optional<Refusal> find_capacity_fault(const Register& info) {
  const Capacity& capacity = info.capacity;
  const KvGeometry& geometry = info.geometry;
  if (geometry.block_tokens == 0 || geometry.block_bytes() == 0) {
    return refusal(
        ErrorCode::invalid_argument,
        "the KV geometry is empty: layers, heads, head_dim and block_tokens must be > 0");
  }
  if (capacity.blocks == 0 || capacity.context_max == 0) {
    return refusal(ErrorCode::invalid_argument,
                   "capacity of " + std::to_string(capacity.blocks) + " blocks and a context of " +
                       std::to_string(capacity.context_max) + "; both must be > 0");
  }
  if (info.role == Role::decode && capacity.slots == 0) {
    return refusal(ErrorCode::invalid_argument,
                   "a decode instance with 0 slots; expected 1 or more (--max-num-seqs)");
  }
  return std::nullopt;
}

std::optional<Refusal> find_placement_fault(const Register& info) {
  if (const Result<void> sound = check_placement(info.placement); !sound.ok()) {
    return refusal(sound.error().code, "its KV placement: " + sound.error().text);
  }
  if (info.placement.geometry(0) != info.geometry) {
    return refusal(ErrorCode::invalid_argument,
                   "its KV geometry is not that of the first rank of its placement");
  }
  return std::nullopt;
}

}  // namespace

uint64_t Worker::positions_max() const {
  const uint64_t pool = uint64_t{info.capacity.blocks} * info.geometry.block_tokens;
  return std::min<uint64_t>(info.capacity.context_max, pool);
}

Membership::Membership(const Limits& limits, uint64_t model_hash)
    : limits_(limits), model_hash_(model_hash) {}

std::optional<Refusal> Membership::find_fault(const Register& info) {
  if (auto fault = find_capacity_fault(info)) return fault;
  const uint64_t served = model_hash_ != 0 ? model_hash_
                          : live_.empty()  ? info.model_hash
                                           : live_.begin()->second.info.model_hash;
  if (info.model_hash != served) {
    return refusal(ErrorCode::conflict, "another model: this worker has the model with hash " +
                                            hex(info.model_hash) + ", the cluster serves " +
                                            hex(served) + "; start every rank with the same file");
  }
  if (auto fault = find_placement_fault(info)) return fault;
  return find_plan_fault(info, info.placement);
}

// A layout that cannot be served with everybody on the other side is refused when it joins, not
// when a request fails on it.
std::optional<Refusal> Membership::find_plan_fault(const Register& info,
                                                   const Placement& placement) {
  for (const auto& [key, other] : live_) {
    if (other.info.role == info.role) continue;
    const bool sends = info.role == Role::prefill;
    const Result<const Plan*> planned = sends ? plans_.plan(placement, other.info.placement)
                                              : plans_.plan(other.info.placement, placement);
    const std::string with = std::string(role_name(other.info.role)) + " instance on rank " +
                             std::to_string(key.rank) + ": ";
    if (!planned) {
      return refusal(planned.error().code,
                     "no reshard plan with the " + with + planned.error().text);
    }
  }
  return std::nullopt;
}

Membership::JoinResult Membership::join(ActorId from, const Register& info, Micros now) {
  if (Worker* known = find(from)) {
    known->heard_at = now;
    return {Join::again, {}, known};
  }
  CHECK(!live_.contains(worker_key(from)));
  if (auto fault = find_fault(info)) {
    ++counters_.refused;
    return {Join::refused, std::move(*fault), nullptr};
  }
  Worker& worker = live_[worker_key(from)];
  worker.id = from;
  worker.info = info;
  worker.load.slots_free = info.capacity.slots;
  worker.load.blocks_free = info.capacity.blocks;
  worker.heard_at = now;
  dead_.erase(worker_key(from));
  ++counters_.joined;
  return {Join::joined, {}, &worker};
}

Worker* Membership::find(ActorId life) {
  Worker* worker = at(worker_key(life));
  return worker && worker->id == life ? worker : nullptr;
}

Worker* Membership::at(WorkerKey key) {
  const auto found = live_.find(key);
  return found == live_.end() ? nullptr : &found->second;
}

Worker* Membership::hear(ActorId from, Micros now) {
  Worker* worker = find(from);
  if (worker) {
    worker->heard_at = now;
    worker->probe_until = kNever;
  }
  return worker;
}

bool Membership::fenced(ActorId life) const {
  const auto found = fenced_.find(worker_key(life));
  return found != fenced_.end() && life.incarnation <= found->second;
}

void Membership::beat(Worker& worker, const Beat& beat) {
  worker.load = beat;
  if (beat.echo >= worker.unechoed_seq) worker.unechoed_at = kNever;
}

void Membership::acknowledged(Worker& worker, uint64_t seq, Micros now) {
  if (worker.unechoed_at != kNever) return;
  worker.unechoed_seq = seq;
  worker.unechoed_at = now;
}

void Membership::suspect(uint32_t rank, Micros now) {
  for (auto at = live_.lower_bound({rank, 0}); at != live_.end() && at->first.rank == rank; ++at) {
    at->second.probe_until = std::min(at->second.probe_until, now + limits_.probe_us);
  }
}

void Membership::trust(uint32_t rank) {
  for (auto at = live_.lower_bound({rank, 0}); at != live_.end() && at->first.rank == rank; ++at) {
    at->second.probe_until = kNever;
  }
}

std::vector<Membership::Dead> Membership::overdue(Micros now) const {
  const Micros patience = limits_.beats_missed_max * limits_.beat_period_us;
  std::vector<Dead> dead;
  for (const auto& [key, worker] : live_) {
    if (worker.probe_until <= now) {
      dead.push_back(
          {worker.id, "its link broke and it was not heard of for " + in_ms(limits_.probe_us)});
    } else if (now - worker.heard_at > patience) {
      dead.push_back({worker.id, "no beat for " + in_ms(now - worker.heard_at)});
    } else if (worker.unechoed_at != kNever && now - worker.unechoed_at > patience) {
      dead.push_back({worker.id, "it does not hear the scheduler: no echo for " +
                                     in_ms(now - worker.unechoed_at)});
    }
  }
  return dead;
}

Worker Membership::bury(ActorId life) {
  const auto found = live_.find(worker_key(life));
  CHECK(found != live_.end() && found->second.id == life);
  Worker worker = std::move(found->second);
  live_.erase(found);
  uint32_t& fence = fenced_[worker_key(life)];
  fence = std::max(fence, life.incarnation);
  Worker& remembered = dead_[worker_key(life)];
  remembered = worker;
  remembered.requests.clear();
  ++counters_.deaths;
  return worker;
}

void Membership::restart_ages(Micros now) {
  for (auto& [key, worker] : live_) {
    worker.heard_at = now;
    if (worker.unechoed_at != kNever) worker.unechoed_at = now;
    if (worker.probe_until != kNever) worker.probe_until = now + limits_.probe_us;
    worker.closed_until = std::min(worker.closed_until, now + kLongestPause);
  }
}

void Membership::note_failure(Worker& worker, Micros now) {
  ++worker.failures;
  if (worker.failures < 2) return;
  const uint32_t doublings = std::min<uint32_t>(worker.failures - 2, 16);
  worker.closed_until = now + std::min(kLongestPause, kFirstPause << doublings);
}

void Membership::note_success(Worker& worker) {
  worker.failures = 0;
  worker.closed_until = 0;
}

bool Membership::open(const Worker& worker, Micros now) const {
  if (now < worker.closed_until) return false;
  return worker.failures == 0 || worker.arriving == 0;
}

const Plan& Membership::plan(const Worker& source, const Worker& target) {
  const Result<const Plan*> planned = plans_.plan(source.info.placement, target.info.placement);
  CHECK(planned.ok());
  return **planned;
}

}  // namespace baton
