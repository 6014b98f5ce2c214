#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/actor/weights.h"
#include "runtime/base/check.h"
#include "runtime/base/result.h"

namespace baton {

// Which sets of weights an engine holds, by version: those that it may compute with, and those
// being prepared. The engine owns one, and locks around it if other threads finish preparations.
template <class Set>
class WeightSets {
 public:
  // A set stays alive with the step that computes with it, also when it was dropped meanwhile.
  using Pointer = std::shared_ptr<const Set>;

  explicit WeightSets(size_t sets_max) : sets_max_(sets_max) {}

  // The set that the engine starts with.
  void start(uint64_t version, uint64_t digest, Pointer set) {
    sets_[version] = {{version, digest, true, {}}, 0, std::move(set)};
  }

  // Room and a free version for a preparation that `owner` is to hear of, or why not.
  Result<void> begin(const WeightsOrder& order, ActorId owner) {
    if (sets_.contains(order.version)) {
      return Error{ErrorCode::conflict, "weights version " + std::to_string(order.version) +
                                            " is here already; expected another number"};
    }
    if (sets_.size() >= sets_max_) {
      return Error{ErrorCode::busy, std::to_string(sets_.size()) +
                                        " sets of weights are in memory, which is the limit; one "
                                        "of them has to be dropped first"};
    }
    Entry& entry = sets_[order.version];
    entry.info = {order.version, 0, false, order.source};
    entry.ticket = order.ticket;
    entry.owner = owner;
    return {};
  }
  // This preparation has ended. False: it was dropped meanwhile, by its owner or by the owner's
  // next life, which may have asked for the same again.
  bool finish(const WeightsOrder& order, ActorId owner, uint64_t digest, Pointer set) {
    Entry* entry = pending(order, owner);
    if (entry == nullptr) return false;
    entry->info.digest = digest;
    entry->set = std::move(set);
    return true;
  }
  bool fail(const WeightsOrder& order, ActorId owner) {
    if (pending(order, owner) == nullptr) return false;
    sets_.erase(order.version);
    return true;
  }

  void commit(uint64_t version) {
    const auto found = sets_.find(version);
    CHECK_MSG(found != sets_.end() && found->second.set, "weights that are not here");
    found->second.info.committed = true;
  }
  void drop(uint64_t version) {
    std::erase_if(sets_, [&](const auto& entry) {
      return version == kUncommittedWeights ? !entry.second.info.committed : entry.first == version;
    });
  }
  bool contains(uint64_t version) const { return sets_.contains(version); }
  bool is_pending(const WeightsOrder& order, ActorId owner) {
    return pending(order, owner) != nullptr;
  }

  // The set that a batch names; 0 names the latest committed one.
  Pointer of_batch(uint64_t version) const {
    Pointer found;
    for (const auto& [number, entry] : sets_) {
      if (entry.info.committed && (version == 0 || version == number)) found = entry.set;
    }
    CHECK_MSG(found != nullptr, "a batch names weights that are not committed here");
    return found;
  }
  std::vector<WeightsInfo> list() const {
    std::vector<WeightsInfo> all;
    for (const auto& [version, entry] : sets_) {
      if (entry.set) all.push_back(entry.info);
    }
    return all;
  }

 private:
  struct Entry {
    WeightsInfo info;
    uint64_t ticket = 0;
    Pointer set = nullptr;  // while it is prepared
    ActorId owner = {};
  };
  Entry* pending(const WeightsOrder& order, ActorId owner) {
    const auto found = sets_.find(order.version);
    if (found == sets_.end() || found->second.set) return nullptr;
    const bool same = found->second.ticket == order.ticket && found->second.owner == owner;
    return same ? &found->second : nullptr;
  }

  size_t sets_max_;
  std::map<uint64_t, Entry> sets_;
};

}  // namespace baton
