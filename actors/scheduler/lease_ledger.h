#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "actors/scheduler/worker_key.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"

namespace baton {

enum class LeaseState : uint8_t { free = 0, reserved = 1, active = 2, quarantined = 3 };
const char* lease_state_name(LeaseState state) noexcept;

// What may still be reserved on one decode instance.
struct LeaseRoom {
  uint32_t slots = 0;
  uint32_t blocks = 0;
  uint32_t slots_used = 0;  // reserved or active
  friend bool operator==(const LeaseRoom&, const LeaseRoom&) = default;
};

// The lease ledger: which decode slots and blocks are promised to which transfer, from Reserve to
// SlotFreed, apart from how the requests fare. Slots are counted from Reserve on and known by name
// (slot, generation) from Reserved on; a name credits once, whatever arrives late or twice. Blocks
// are a credit: the decode actor's last report, less what was asked of it since. Pure; owned by the
// scheduler, its thread only.
class LeaseLedger {
 public:
  // A decode instance's life begins, all free; or ends, and every lease on it with it.
  void join(WorkerKey instance, uint32_t slots, uint32_t blocks);
  void leave(WorkerKey instance);

  // FREE -> RESERVED. The room must be there.
  void reserve(TransferId transfer, WorkerKey instance, uint32_t slots, uint32_t blocks);
  // The decode actor named the slots, and said how many blocks it took. Legal in quarantine too:
  // Release and Reserved may have crossed. False: no such lease, or another number of slots.
  bool confirm(TransferId transfer, const std::vector<SlotLease>& slots, uint32_t blocks);
  // RESERVED -> ACTIVE. Any other state stays.
  void activate(TransferId transfer);
  // RESERVED or ACTIVE -> QUARANTINED: given up, but the decode actor has not said so yet.
  void quarantine(TransferId transfer, Micros now);
  // Any -> FREE: the decode actor never took it. False: no such lease.
  bool credit_refused(TransferId transfer);

  struct Credit {
    bool credited = false;  // false: an old generation, or already credited
    bool last = false;      // no slot of the transfer is left
    TransferId transfer;
  };
  // Any -> FREE for one slot, if the generation is that of the lease.
  Credit credit_slot(WorkerKey instance, SlotLease slot);

  // What the decode actor itself counts as free. Ordered after what it has answered.
  void report(WorkerKey instance, uint32_t slots_free, uint32_t blocks_free);

  // QUARANTINED for longer than that -> FREE: the word that it ended was lost, and if the decode
  // actor still holds it, it will refuse. Returns the instances concerned, each once.
  std::vector<WorkerKey> reclaim(Micros quarantined_before);

  // Whose slot it is under that generation, if it is still owed.
  std::optional<TransferId> owner(WorkerKey instance, SlotLease slot) const;
  bool holds(TransferId transfer) const { return leases_.contains(transfer); }
  LeaseState state(TransferId transfer) const;  // free when there is no such lease
  LeaseRoom room(WorkerKey instance) const;
  // Slots per LeaseState, over all instances.
  std::array<uint64_t, 4> slots_by_state() const { return slots_; }
  uint64_t reclaimed() const { return reclaimed_; }

 private:
  struct Lease {
    WorkerKey instance;
    LeaseState state = LeaseState::reserved;
    uint32_t slots = 0;   // not credited yet
    uint32_t blocks = 0;  // asked for; counts until the decode actor's own number includes it
    bool named = false;
    Micros quarantined_at = 0;
    std::vector<SlotLease> names;
  };
  struct Owner {
    Generation generation;
    TransferId transfer;
  };
  struct Instance {
    uint32_t slots = 0;
    uint32_t slots_used[4] = {0, 0, 0, 0};  // by LeaseState; [free] unused
    uint32_t slots_unnamed = 0;             // of leases that are not confirmed
    uint32_t blocks_unnamed = 0;
    uint32_t slots_reported = 0;
    uint32_t blocks_reported = 0;
    std::map<SlotId, Owner> owners;
    std::set<TransferId> leases;
  };
  using Leases = std::map<TransferId, Lease>;

  void count(Instance& instance, LeaseState state, int64_t slots);
  void move(Lease& lease, LeaseState to);
  void settle_unnamed(Instance& instance, Lease& lease);
  void erase(Leases::iterator lease);
  void drop(Leases::iterator lease);
  Credit take_name(Instance& instance, std::map<SlotId, Owner>::iterator owner);

  std::map<WorkerKey, Instance> instances_;
  Leases leases_;
  std::set<std::pair<Micros, TransferId>> quarantine_;  // oldest first
  std::array<uint64_t, 4> slots_{};
  uint64_t reclaimed_ = 0;
};

}  // namespace baton
