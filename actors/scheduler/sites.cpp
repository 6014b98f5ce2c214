#include "actors/scheduler/sites.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr uint64_t kSequenceCost = 64;  // a running sequence weighs as much as so many positions
constexpr size_t kKnownMax = 4;         // instances with the same beginning that are compared

// Free blocks that a newcomer may take: one stays back for each sequence that is there already, so
// that admitting one request does not at once preempt another.
uint32_t spendable(const LeaseRoom& room) {
  return room.blocks > room.slots_used ? room.blocks - room.slots_used : 0;
}

// The least loaded instance, or one that knows the beginning of the prompt and is cheaper for it.
template <class Known, class Cost>
WorkerKey cheapest(WorkerKey least_loaded, const Known& with_prefix, const Cost& cost_of) {
  WorkerKey best = least_loaded;
  uint64_t cost = cost_of(best, 0);
  for (const PrefixDirectory::Known& known : with_prefix) {
    const uint64_t its = cost_of(known.instance, known.tokens);
    if (its >= cost) continue;
    cost = its;
    best = known.instance;
  }
  return best;
}

}  // namespace

uint64_t prefill_cost(const PrefillSite& site, uint64_t positions, uint64_t cached) {
  return site.positions_ahead + (positions > cached ? positions - cached : 1);
}

uint64_t decode_cost(const DecodeSite& site, uint64_t positions, uint64_t cached) {
  return site.room.slots_used * kSequenceCost + (positions > cached ? positions - cached : 1);
}

uint32_t Sites::blocks_for(const Need& need, uint32_t block_tokens, uint32_t pool_blocks) {
  CHECK(block_tokens > 0);
  const uint64_t first = (need.positions + need.own + block_tokens - 1) / block_tokens;
  const uint64_t all = first + (need.slots - 1) * (1 + need.own / block_tokens);
  return static_cast<uint32_t>(std::min(all, std::max<uint64_t>(first, pool_blocks)));
}

Sites::DecodeOrder Sites::order(WorkerKey key, const DecodeSite& site) {
  return {site.room.slots_used, UINT32_MAX - site.room.blocks, key};
}

Sites::SpaceOrder Sites::space(WorkerKey key, const DecodeSite& site) {
  return {uint64_t{spendable(site.room)} * site.block_tokens, key};
}

void Sites::unlist(WorkerKey key) {
  if (const auto found = prefills_.find(key); found != prefills_.end()) {
    prefills_open_.erase({found->second.positions_ahead, key});
  }
  if (const auto found = decodes_.find(key); found != decodes_.end()) {
    decodes_open_.erase(order(key, found->second));
    decodes_by_space_.erase(space(key, found->second));
  }
}

void Sites::put(WorkerKey key, const PrefillSite& site) {
  unlist(key);
  const bool fresh = prefills_.insert_or_assign(key, site).second;
  if (site.open && site.outstanding < site.window) {
    prefills_open_.insert({site.positions_ahead, key});
  }
  if (fresh) survey();
}

void Sites::put(WorkerKey key, const DecodeSite& site) {
  unlist(key);
  const bool fresh = decodes_.insert_or_assign(key, site).second;
  if (site.open && site.room.slots > 0) {
    decodes_open_.insert(order(key, site));
    decodes_by_space_.insert(space(key, site));
  }
  if (fresh) survey();
}

void Sites::erase(WorkerKey key) {
  unlist(key);
  prefills_.erase(key);
  decodes_.erase(key);
  prefixes_.forget(key);
  survey();
}

void Sites::survey() {
  reach_ = {};
  for (const auto& [key, site] : prefills_) {
    reach_.prefill = true;
    reach_.prefill_positions = std::max(reach_.prefill_positions, site.positions_max);
  }
  for (const auto& [key, site] : decodes_) {
    reach_.decode = true;
    reach_.decode_positions = std::max(reach_.decode_positions, site.positions_max);
    reach_.decode_slots = std::max(reach_.decode_slots, site.slots);
  }
}

bool Sites::has_weights(const Need& need, const std::vector<uint64_t>& versions) const {
  const uint64_t wanted = need.weights == 0 ? weights_ : need.weights;
  return std::find(versions.begin(), versions.end(), wanted) != versions.end();
}

bool Sites::serve(uint64_t version) const {
  Need need;
  need.weights = version;
  const auto has = [&](const auto& entry) { return has_weights(need, entry.second.weights); };
  return std::any_of(prefills_.begin(), prefills_.end(), has) &&
         std::any_of(decodes_.begin(), decodes_.end(), has);
}

bool Sites::fits(const Need& need, const DecodeSite& site) const {
  return site.positions_max >= need.positions_max && site.room.slots >= need.slots &&
         spendable(site.room) >= blocks_for(need, site.block_tokens, site.blocks) &&
         has_weights(need, site.weights);
}

bool Sites::possible(const Need& need) const {
  const bool local = need.may_local && local_.allowed() && !reach_.prefill;
  if (!local && need.positions_max > reach_.prefill_positions) return false;
  if (need.positions_max > reach_.decode_positions || need.slots > reach_.decode_slots) {
    return false;
  }
  if (need.slots == 1) return reach_.decode && (reach_.prefill || local);
  return std::any_of(decodes_.begin(), decodes_.end(), [&](const auto& entry) {
    return entry.second.positions_max >= need.positions_max && entry.second.slots >= need.slots;
  });
}

std::optional<WorkerKey> Sites::choose_prefill(const Need& need,
                                               std::span<const PrefixHash> prefix) const {
  const auto open = [&](WorkerKey key) {
    const auto site = prefills_.find(key);
    return site != prefills_.end() && site->second.positions_max >= need.positions_max &&
           has_weights(need, site->second.weights) &&
           prefills_open_.contains({site->second.positions_ahead, key});
  };
  const auto least = std::find_if(prefills_open_.begin(), prefills_open_.end(),
                                  [&](const PrefillOrder& entry) { return open(entry.key); });
  if (least == prefills_open_.end()) return std::nullopt;
  return cheapest(least->key, prefixes_.find(prefix, kKnownMax, open),
                  [&](WorkerKey key, uint64_t cached) {
                    return prefill_cost(prefills_.at(key), need.positions, cached);
                  });
}

std::optional<WorkerKey> Sites::choose_decode(const Need& need, std::optional<WorkerKey> excluded,
                                              std::span<const PrefixHash> prefix) const {
  const bool hopeless =
      decodes_by_space_.empty() || decodes_by_space_.rbegin()->positions < need.positions;
  if (hopeless) return std::nullopt;
  const auto open = [&](WorkerKey key) {
    const auto site = decodes_.find(key);
    return site != decodes_.end() && key != excluded &&
           decodes_open_.contains(order(key, site->second)) && fits(need, site->second);
  };
  const auto least = std::find_if(decodes_open_.begin(), decodes_open_.end(),
                                  [&](const DecodeOrder& entry) { return open(entry.key); });
  if (least == decodes_open_.end()) return std::nullopt;
  return cheapest(least->key, prefixes_.find(prefix, kKnownMax, open),
                  [&](WorkerKey key, uint64_t cached) {
                    return decode_cost(decodes_.at(key), need.positions, cached);
                  });
}

uint32_t Sites::local_tokens(const Need& need, std::optional<WorkerKey> source,
                             const DecodeSite& target) const {
  if (!need.may_local || !local_.allowed()) return 0;
  LocalPrefillLoad load;
  load.prefill_alive = reach_.prefill;
  load.sequences = target.room.slots_used;
  load.kv_bytes_per_token = target.bytes_per_token;
  if (source) {
    load.tokens_ahead = prefills_.at(*source).positions_ahead;
  } else {  // with every window full, it would wait for all that the least loaded one has ahead
    load.tokens_ahead = UINT64_MAX;
    for (const auto& [key, site] : prefills_) {
      load.tokens_ahead = std::min(load.tokens_ahead, site.positions_ahead);
    }
  }
  return local_tokens_max(local_, load);
}

Place Sites::place(const Need& need, std::optional<WorkerKey> excluded,
                   std::span<const PrefixHash> prefix) const {
  if (!possible(need)) return {PlaceOutcome::impossible, {}, {}, 0};
  const std::optional<WorkerKey> source = choose_prefill(need, prefix);
  // One that is bound to other weights than most does not hold up those behind it.
  const bool bound = need.weights != 0 && need.weights != weights_;
  const PlaceOutcome no_source = bound ? PlaceOutcome::decode_full : PlaceOutcome::prefill_full;
  if (!source && (!need.may_local || !local_.allowed())) return {no_source, {}, {}, 0};
  const std::optional<WorkerKey> target = choose_decode(need, excluded, prefix);
  if (!target) return {PlaceOutcome::decode_full, {}, {}, 0};
  const uint32_t local = local_tokens(need, source, decodes_.at(*target));
  if (source) return {PlaceOutcome::placed, source, *target, local};
  if (need.positions > uint64_t{local} + 1) return {no_source, {}, {}, 0};
  return {PlaceOutcome::placed, {}, *target, UINT32_MAX};
}

void Sites::note_prefix(std::span<const PrefixHash> prefix, std::optional<WorkerKey> source,
                        WorkerKey target) {
  if (source) prefixes_.note(prefix, *source);
  prefixes_.note(prefix, target);
}

std::optional<WorkerKey> Sites::claim(const Need& need) const {
  std::optional<WorkerKey> best;
  uint32_t blocks = 0;
  for (const auto& [key, site] : decodes_) {
    if (site.positions_max < need.positions_max || site.slots < need.slots) continue;
    if (!has_weights(need, site.weights)) continue;
    if (best && site.room.blocks <= blocks) continue;
    best = key;
    blocks = site.room.blocks;
  }
  return best;
}

}  // namespace baton
