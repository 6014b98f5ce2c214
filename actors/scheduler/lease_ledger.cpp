#include "actors/scheduler/lease_ledger.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {
namespace {

uint32_t less(uint32_t a, uint32_t b) {
  return a > b ? a - b : 0;
}

}  // namespace

const char* lease_state_name(LeaseState state) noexcept {
  switch (state) {
    case LeaseState::free: return "free";
    case LeaseState::reserved: return "reserved";
    case LeaseState::active: return "active";
    case LeaseState::quarantined: return "quarantined";
  }
  return "?";
}

// Moves `slots` slots from FREE to `state`, or back when negative.
void LeaseLedger::count(Instance& instance, LeaseState state, int64_t slots) {
  const auto at = static_cast<size_t>(state);
  instance.slots_used[at] = static_cast<uint32_t>(instance.slots_used[at] + slots);
  slots_[at] = static_cast<uint64_t>(static_cast<int64_t>(slots_[at]) + slots);
  slots_[0] = static_cast<uint64_t>(static_cast<int64_t>(slots_[0]) - slots);
}

void LeaseLedger::join(WorkerKey key, uint32_t slots, uint32_t blocks) {
  CHECK(!instances_.contains(key));
  Instance& instance = instances_[key];
  instance.slots = instance.slots_reported = slots;
  instance.blocks_reported = blocks;
  slots_[0] += slots;
}

void LeaseLedger::leave(WorkerKey key) {
  const auto found = instances_.find(key);
  if (found == instances_.end()) return;
  const std::set<TransferId> held = found->second.leases;
  for (const TransferId transfer : held) erase(leases_.find(transfer));
  slots_[0] -= found->second.slots;
  instances_.erase(found);
}

void LeaseLedger::reserve(TransferId transfer, WorkerKey key, uint32_t slots, uint32_t blocks) {
  const LeaseRoom free = room(key);
  CHECK(slots > 0 && free.slots >= slots);
  CHECK(free.blocks >= blocks);
  const auto [entry, fresh] = leases_.try_emplace(transfer);
  CHECK(fresh);
  Lease& lease = entry->second;
  lease.instance = key;
  lease.slots = slots;
  lease.blocks = blocks;
  Instance& instance = instances_.at(key);
  instance.leases.insert(transfer);
  instance.slots_unnamed += slots;
  instance.blocks_unnamed += blocks;
  count(instance, LeaseState::reserved, slots);
}

bool LeaseLedger::confirm(TransferId transfer, const std::vector<SlotLease>& slots,
                          uint32_t blocks) {
  const auto found = leases_.find(transfer);
  if (found == leases_.end() || found->second.named || found->second.slots != slots.size()) {
    return false;
  }
  Lease& lease = found->second;
  Instance& instance = instances_.at(lease.instance);
  settle_unnamed(instance, lease);
  instance.slots_reported = less(instance.slots_reported, lease.slots);
  instance.blocks_reported = less(instance.blocks_reported, blocks);
  lease.named = true;
  lease.names = slots;
  for (const SlotLease& slot : slots) {
    // The decode actor is the authority on its slots: an earlier owner's end went missing.
    if (auto old = instance.owners.find(slot.slot); old != instance.owners.end()) {
      take_name(instance, old);
    }
    instance.owners[slot.slot] = Owner{slot.generation, transfer};
  }
  return true;
}

// Its slots and blocks are in the decode actor's own numbers from now on.
void LeaseLedger::settle_unnamed(Instance& instance, Lease& lease) {
  if (lease.named) return;
  instance.slots_unnamed -= lease.slots;
  instance.blocks_unnamed -= lease.blocks;
}

void LeaseLedger::move(Lease& lease, LeaseState to) {
  Instance& instance = instances_.at(lease.instance);
  count(instance, lease.state, -int64_t{lease.slots});
  count(instance, to, lease.slots);
  lease.state = to;
}

void LeaseLedger::activate(TransferId transfer) {
  const auto found = leases_.find(transfer);
  if (found == leases_.end() || found->second.state != LeaseState::reserved) return;
  move(found->second, LeaseState::active);
}

void LeaseLedger::quarantine(TransferId transfer, Micros now) {
  const auto found = leases_.find(transfer);
  if (found == leases_.end() || found->second.state == LeaseState::quarantined) return;
  move(found->second, LeaseState::quarantined);
  found->second.quarantined_at = now;
  quarantine_.emplace(now, transfer);
}

void LeaseLedger::erase(Leases::iterator entry) {
  Lease& lease = entry->second;
  Instance& instance = instances_.at(lease.instance);
  settle_unnamed(instance, lease);
  count(instance, lease.state, -int64_t{lease.slots});
  for (const SlotLease& name : lease.names) {
    const auto owner = instance.owners.find(name.slot);
    if (owner != instance.owners.end() && owner->second.transfer == entry->first) {
      instance.owners.erase(owner);
    }
  }
  drop(entry);
}

// Takes a lease that counts nowhere any more off the books.
void LeaseLedger::drop(Leases::iterator entry) {
  instances_.at(entry->second.instance).leases.erase(entry->first);
  quarantine_.erase({entry->second.quarantined_at, entry->first});
  leases_.erase(entry);
}

bool LeaseLedger::credit_refused(TransferId transfer) {
  const auto found = leases_.find(transfer);
  if (found == leases_.end()) return false;
  erase(found);
  return true;
}

LeaseLedger::Credit LeaseLedger::take_name(Instance& instance,
                                           std::map<SlotId, Owner>::iterator owner) {
  const auto found = leases_.find(owner->second.transfer);
  CHECK(found != leases_.end());
  Credit credit{true, false, found->first};
  instance.owners.erase(owner);
  count(instance, found->second.state, -1);
  if (--found->second.slots == 0) {
    credit.last = true;
    drop(found);
  }
  return credit;
}

LeaseLedger::Credit LeaseLedger::credit_slot(WorkerKey key, SlotLease slot) {
  const auto instance = instances_.find(key);
  if (instance == instances_.end()) return {};
  const auto owner = instance->second.owners.find(slot.slot);
  if (owner == instance->second.owners.end() || owner->second.generation != slot.generation) {
    return {};
  }
  instance->second.slots_reported =
      std::min(instance->second.slots_reported + 1, instance->second.slots);
  return take_name(instance->second, owner);
}

void LeaseLedger::report(WorkerKey key, uint32_t slots_free, uint32_t blocks_free) {
  const auto instance = instances_.find(key);
  if (instance == instances_.end()) return;
  instance->second.slots_reported = std::min(slots_free, instance->second.slots);
  instance->second.blocks_reported = blocks_free;
}

std::vector<WorkerKey> LeaseLedger::reclaim(Micros quarantined_before) {
  std::vector<WorkerKey> concerned;
  while (!quarantine_.empty() && quarantine_.begin()->first < quarantined_before) {
    const auto found = leases_.find(quarantine_.begin()->second);
    CHECK(found != leases_.end());
    const WorkerKey key = found->second.instance;
    if (std::find(concerned.begin(), concerned.end(), key) == concerned.end()) {
      concerned.push_back(key);
    }
    reclaimed_ += found->second.slots;
    erase(found);
  }
  return concerned;
}

std::optional<TransferId> LeaseLedger::owner(WorkerKey key, SlotLease slot) const {
  const auto instance = instances_.find(key);
  if (instance == instances_.end()) return std::nullopt;
  const auto found = instance->second.owners.find(slot.slot);
  if (found == instance->second.owners.end() || found->second.generation != slot.generation) {
    return std::nullopt;
  }
  return found->second.transfer;
}

LeaseState LeaseLedger::state(TransferId transfer) const {
  const auto found = leases_.find(transfer);
  return found == leases_.end() ? LeaseState::free : found->second.state;
}

LeaseRoom LeaseLedger::room(WorkerKey key) const {
  const auto found = instances_.find(key);
  if (found == instances_.end()) return {};
  const Instance& at = found->second;
  const uint32_t used = at.slots_used[1] + at.slots_used[2];
  const uint32_t by_ledger = less(at.slots, used + at.slots_used[3]);
  const uint32_t by_report = less(at.slots_reported, at.slots_unnamed);
  return {std::min(by_ledger, by_report), less(at.blocks_reported, at.blocks_unnamed), used};
}

}  // namespace baton
