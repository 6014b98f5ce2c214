#pragma once

#include <compare>
#include <cstdint>
#include <functional>

namespace baton {

// A number with a type of its own, so that a request id never stands where a block id belongs.
// Tag is an incomplete type that only names the kind.
template <class Tag, class Rep>
struct StrongId {
  using Value = Rep;
  Rep value = 0;

  friend constexpr auto operator<=>(StrongId, StrongId) = default;
};

using RequestId = StrongId<struct RequestTag, uint64_t>;    // minted by a gateway, never reused
using TransferId = StrongId<struct TransferTag, uint64_t>;  // minted by the scheduler, never reused
using InstanceId = StrongId<struct InstanceTag, uint32_t>;  // one engine: one or more ranks
using SlotId = StrongId<struct SlotTag, uint32_t>;          // a decode slot of one instance
using BlockId = StrongId<struct BlockTag, uint32_t>;        // a KV block of one rank's pool
using PlanDigest = StrongId<struct PlanTag, uint64_t>;      // XXH3 of a reshard plan's bytes
using TimerId = StrongId<struct TimerTag, uint64_t>;        // a pending timer of one actor
using StepId = StrongId<struct StepTag, uint64_t>;          // a batch given to one engine
using Epoch = StrongId<struct EpochTag, uint32_t>;          // fences the lives of one request
using Generation = StrongId<struct GenerationTag, uint32_t>;  // fences the owners of one slot

using TokenId = int32_t;

// A slot and the owner it is meant for; a message for an earlier owner does not match.
struct SlotLease {
  SlotId slot;
  Generation generation;
  friend constexpr auto operator<=>(const SlotLease&, const SlotLease&) = default;
};

}  // namespace baton

template <class Tag, class Rep>
struct std::hash<baton::StrongId<Tag, Rep>> {
  size_t operator()(baton::StrongId<Tag, Rep> id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
