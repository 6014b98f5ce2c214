#include "actors/decode/slots.h"

#include "runtime/base/check.h"

namespace baton {

std::optional<SlotLease> Slots::take() {
  for (uint32_t i = 0; i < size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.taken) continue;
    entry.taken = true;
    ++entry.generation.value;
    --free_;
    return SlotLease{{i}, entry.generation};
  }
  return std::nullopt;
}

void Slots::give_back(SlotLease lease) {
  CHECK(holds(lease));
  entries_[lease.slot.value].taken = false;
  ++free_;
}

bool Slots::holds(SlotLease lease) const {
  return lease.slot.value < size() && entries_[lease.slot.value].taken &&
         entries_[lease.slot.value].generation == lease.generation;
}

}  // namespace baton
