#include "actors/scheduler/sites.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {
namespace {

// Free blocks that a newcomer may take: one stays back for each sequence that is there already, so
// that admitting one request does not at once preempt another.
uint32_t spendable(const LeaseRoom& room) {
  return room.blocks > room.slots_used ? room.blocks - room.slots_used : 0;
}

}  // namespace

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

bool Sites::fits(const Need& need, const DecodeSite& site) {
  return site.positions_max >= need.positions_max && site.room.slots >= need.slots &&
         spendable(site.room) >= blocks_for(need, site.block_tokens, site.blocks);
}

bool Sites::possible(const Need& need) const {
  if (need.positions_max > reach_.prefill_positions) return false;
  if (need.positions_max > reach_.decode_positions || need.slots > reach_.decode_slots) {
    return false;
  }
  if (need.slots == 1) return reach_.prefill && reach_.decode;
  return std::any_of(decodes_.begin(), decodes_.end(), [&](const auto& entry) {
    return entry.second.positions_max >= need.positions_max && entry.second.slots >= need.slots;
  });
}

Place Sites::place(const Need& need, std::optional<WorkerKey> excluded) const {
  if (!possible(need)) return {PlaceOutcome::impossible, {}, {}};
  const auto source =
      std::find_if(prefills_open_.begin(), prefills_open_.end(), [&](const PrefillOrder& entry) {
        return prefills_.at(entry.key).positions_max >= need.positions_max;
      });
  if (source == prefills_open_.end()) return {PlaceOutcome::prefill_full, {}, {}};
  const bool hopeless =
      decodes_by_space_.empty() || decodes_by_space_.rbegin()->positions < need.positions;
  if (hopeless) return {PlaceOutcome::decode_full, {}, {}};
  for (const DecodeOrder& entry : decodes_open_) {
    if (entry.key == excluded || !fits(need, decodes_.at(entry.key))) continue;
    return {PlaceOutcome::placed, source->key, entry.key};
  }
  return {PlaceOutcome::decode_full, {}, {}};
}

std::optional<WorkerKey> Sites::claim(const Need& need) const {
  std::optional<WorkerKey> best;
  uint32_t blocks = 0;
  for (const auto& [key, site] : decodes_) {
    if (site.positions_max < need.positions_max || site.slots < need.slots) continue;
    if (best && site.room.blocks <= blocks) continue;
    best = key;
    blocks = site.room.blocks;
  }
  return best;
}

}  // namespace baton
