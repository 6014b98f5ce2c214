#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "actors/scheduler/lease_ledger.h"
#include "actors/scheduler/worker_key.h"

namespace baton {

// What of a request is left to do.
struct Remainder {
  uint32_t choices = 1;  // that have not ended
  uint64_t carried = 0;  // committed tokens that are prefilled with the prompt
  uint64_t own = 0;      // that each of several choices computes for itself, at most
};

// What a request asks of its instances.
struct Need {
  uint64_t positions = 0;      // that the transfer brings, and one for the next token
  uint64_t positions_max = 0;  // at its end
  uint32_t slots = 1;          // choices
  uint64_t own = 0;            // positions that each of several choices has for itself at once
};

// What the scheduler knows of a prefill instance.
struct PrefillSite {
  uint64_t positions_max = 0;    // of one sequence: context and pool
  uint32_t window = 0;           // requests that may be RESERVING or PREFILL on it at once
  uint32_t outstanding = 0;      // that are
  uint64_t positions_ahead = 0;  // of those
  bool open = true;              // false: after a refusal, for a while
};

// What the scheduler knows of a decode instance.
struct DecodeSite {
  uint64_t positions_max = 0;
  uint32_t slots = 0;
  uint32_t block_tokens = 16;
  uint32_t blocks = UINT32_MAX;  // of its pool
  LeaseRoom room;
  bool open = true;
};

// The most that any live instance could take, were it empty.
struct Reach {
  bool prefill = false;  // there is one
  bool decode = false;
  uint64_t prefill_positions = 0;
  uint64_t decode_positions = 0;
  uint32_t decode_slots = 0;
};

enum class PlaceOutcome : uint8_t {
  placed,
  prefill_full,  // every prefill instance has its window full: nobody can be placed
  decode_full,   // no decode instance has the slots and blocks now; a smaller request may fit
  impossible,    // no live instance could ever take it
};
struct Place {
  PlaceOutcome outcome = PlaceOutcome::impossible;
  WorkerKey source;
  WorkerKey target;
};

// Which instances serve a request: the least loaded of those that have room. Pure; a choice costs
// a look at the head of an ordered index. Owned by the scheduler, its thread only.
class Sites {
 public:
  // Adds a site, or replaces what was known of it.
  void put(WorkerKey key, const PrefillSite& site);
  void put(WorkerKey key, const DecodeSite& site);
  void erase(WorkerKey key);

  // `excluded`: a decode instance that is being kept for an earlier request.
  Place place(const Need& need, std::optional<WorkerKey> excluded = {}) const;
  // The decode instance to keep for a request that others have overtaken often enough: of those
  // that could ever take it, the one with the most free blocks.
  std::optional<WorkerKey> claim(const Need& need) const;
  bool has_decode(WorkerKey key) const { return decodes_.contains(key); }
  // Both roles are there, but none of one of them has any room: nobody can be placed.
  bool full() const {
    return reach_.prefill && reach_.decode && (prefills_open_.empty() || decodes_open_.empty());
  }
  const Reach& reach() const { return reach_; }

  // Blocks that a reservation takes at once: every choice has its own tail. Choices for which the
  // whole pool is too small at once run one after the other.
  static uint32_t blocks_for(const Need& need, uint32_t block_tokens,
                             uint32_t pool_blocks = UINT32_MAX);

 private:
  struct PrefillOrder {
    uint64_t positions_ahead;
    WorkerKey key;
    friend auto operator<=>(const PrefillOrder&, const PrefillOrder&) = default;
  };
  struct DecodeOrder {
    uint32_t slots_used;
    uint32_t blocks_used_rank;  // UINT32_MAX - blocks free
    WorkerKey key;
    friend auto operator<=>(const DecodeOrder&, const DecodeOrder&) = default;
  };
  struct SpaceOrder {
    uint64_t positions;
    WorkerKey key;
    friend auto operator<=>(const SpaceOrder&, const SpaceOrder&) = default;
  };
  static DecodeOrder order(WorkerKey key, const DecodeSite& site);
  static SpaceOrder space(WorkerKey key, const DecodeSite& site);
  static bool fits(const Need& need, const DecodeSite& site);
  bool possible(const Need& need) const;
  void unlist(WorkerKey key);
  void survey();

  std::map<WorkerKey, PrefillSite> prefills_;
  std::map<WorkerKey, DecodeSite> decodes_;
  std::set<PrefillOrder> prefills_open_;   // least loaded first
  std::set<DecodeOrder> decodes_open_;     // least loaded first
  std::set<SpaceOrder> decodes_by_space_;  // those of decodes_open_, least free space first
  Reach reach_;
};

}  // namespace baton
