#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/base/ids.h"

namespace baton {

// The decode slots of one instance. Each owner of a slot has its own generation, so that what is
// meant for an earlier owner never reaches a later one. Deterministic: the lowest free slot is
// taken. Owned by the decode actor.
class Slots {
 public:
  explicit Slots(uint32_t count) : entries_(count), free_(count) {}

  std::optional<SlotLease> take();
  // CHECKs that the lease is the slot's present one.
  void give_back(SlotLease lease);
  bool holds(SlotLease lease) const;
  uint32_t free() const { return free_; }
  uint32_t size() const { return static_cast<uint32_t>(entries_.size()); }

 private:
  struct Entry {
    Generation generation;
    bool taken = false;
  };
  std::vector<Entry> entries_;
  uint32_t free_;
};

}  // namespace baton
