#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "actors/scheduler/lease_ledger.h"
#include "actors/scheduler/local_prefill.h"
#include "actors/scheduler/prefix_directory.h"
#include "actors/scheduler/worker_key.h"
#include "runtime/actor/weights.h"

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
  bool may_local = false;      // a decode instance could compute the prompt itself
  uint64_t weights = 0;        // version that both instances must have; 0: the current one
};

// What the scheduler knows of a prefill instance.
struct PrefillSite {
  uint64_t positions_max = 0;    // of one sequence: context and pool
  uint32_t window = 0;           // requests that may be RESERVING or PREFILL on it at once
  uint32_t outstanding = 0;      // that are
  uint64_t positions_ahead = 0;  // of those
  bool open = true;              // false: after a refusal, for a while
  std::vector<uint64_t> weights = {kFirstWeights};  // versions that requests may run on there
};

// What the scheduler knows of a decode instance.
struct DecodeSite {
  uint64_t positions_max = 0;
  uint32_t slots = 0;
  uint32_t block_tokens = 16;
  uint32_t blocks = UINT32_MAX;  // of its pool
  uint64_t bytes_per_token = 0;  // of KV
  LeaseRoom room;
  bool open = true;
  std::vector<uint64_t> weights = {kFirstWeights};
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
  prefill_full,  // every prefill instance has its window full
  decode_full,   // no decode instance has the slots and blocks now; a smaller request may fit
  impossible,    // no live instance could ever take it
};
struct Place {
  PlaceOutcome outcome = PlaceOutcome::impossible;
  std::optional<WorkerKey> source;  // none: the decode instance computes the prompt
  WorkerKey target;
  uint32_t local_tokens = 0;  // the most missing positions that the target is to compute itself
};

// What a choice of instances costs, in tokens of prefill time; the cheapest is taken. `cached`:
// positions of the prompt that the instance probably has in its prefix cache.
uint64_t prefill_cost(const PrefillSite& site, uint64_t positions, uint64_t cached);
uint64_t decode_cost(const DecodeSite& site, uint64_t positions, uint64_t cached);

// Which instances serve a request: of the least loaded one that has room and of those that were
// given the same beginning before, the cheapest. Pure; a choice costs a look at the head of an
// ordered index and at a few others. Owned by the scheduler, its thread only.
class Sites {
 public:
  explicit Sites(const LocalPrefillPolicy& local = {}) : local_(local) {}

  // Adds a site, or replaces what was known of it.
  void put(WorkerKey key, const PrefillSite& site);
  void put(WorkerKey key, const DecodeSite& site);
  void erase(WorkerKey key);
  // The version that Need::weights 0 stands for.
  void set_weights(uint64_t version) { weights_ = version; }
  // Both roles have an instance with this version, busy or not.
  bool serve(uint64_t version) const;

  // `excluded`: a decode instance that is being kept for an earlier request. `prefix`: the names
  // of the prompt's beginning (PrefixDirectory).
  Place place(const Need& need, std::optional<WorkerKey> excluded = {},
              std::span<const PrefixHash> prefix = {}) const;
  // The instances will have that beginning in their caches.
  void note_prefix(std::span<const PrefixHash> prefix, std::optional<WorkerKey> source,
                   WorkerKey target);
  // The decode instance to keep for a request that others have overtaken often enough: of those
  // that could ever take it, the one with the most free blocks.
  std::optional<WorkerKey> claim(const Need& need) const;
  bool has_decode(WorkerKey key) const { return decodes_.contains(key); }
  // Both roles are there, but none of one of them has any room: nobody can be placed.
  bool full() const {
    if (reach_.decode && decodes_open_.empty() && serving()) return true;
    return reach_.prefill && reach_.decode && prefills_open_.empty() && !local_.allowed();
  }
  // All that a request needs is there.
  bool serving() const { return reach_.decode && (reach_.prefill || local_.allowed()); }
  const LocalPrefillPolicy& local() const { return local_; }
  const Reach& reach() const { return reach_; }

  // Blocks that a reservation takes at once: every choice has its own tail. Choices for which the
  // whole pool is too small at once run one after the other.
  static uint32_t blocks_for(const Need& need, uint32_t block_tokens,
                             uint32_t pool_blocks = UINT32_MAX);

 private:
  static constexpr size_t kPrefixNamesMax = size_t{1} << 16;

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
  bool fits(const Need& need, const DecodeSite& site) const;
  bool has_weights(const Need& need, const std::vector<uint64_t>& versions) const;
  bool possible(const Need& need) const;
  std::optional<WorkerKey> choose_prefill(const Need& need,
                                          std::span<const PrefixHash> prefix) const;
  std::optional<WorkerKey> choose_decode(const Need& need, std::optional<WorkerKey> excluded,
                                         std::span<const PrefixHash> prefix) const;
  uint32_t local_tokens(const Need& need, std::optional<WorkerKey> source,
                        const DecodeSite& target) const;
  void unlist(WorkerKey key);
  void survey();

  std::map<WorkerKey, PrefillSite> prefills_;
  std::map<WorkerKey, DecodeSite> decodes_;
  std::set<PrefillOrder> prefills_open_;   // least loaded first
  std::set<DecodeOrder> decodes_open_;     // least loaded first
  std::set<SpaceOrder> decodes_by_space_;  // those of decodes_open_, least free space first
  Reach reach_;
  const LocalPrefillPolicy local_;
  PrefixDirectory prefixes_{kPrefixNamesMax};
  uint64_t weights_ = kFirstWeights;
};

}  // namespace baton
