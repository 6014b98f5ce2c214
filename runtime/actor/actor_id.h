#pragma once

#include <compare>
#include <cstdint>

namespace baton {

// The address of one life of one actor. `rank` is the MPI rank (0 when there is one process);
// `slot` tells the actors of a rank apart; `incarnation` is raised at each restart, so that mail
// for an earlier life is dropped and counted instead of being obeyed.
struct ActorId {
  uint32_t rank = 0;
  uint32_t slot = 0;
  uint32_t incarnation = 0;

  friend constexpr auto operator<=>(const ActorId&, const ActorId&) = default;
};

// Slots of the actors that every rank may host.
inline constexpr uint32_t kGatewaySlot = 1;
inline constexpr uint32_t kSchedulerSlot = 2;
inline constexpr uint32_t kPrefillSlot = 3;
inline constexpr uint32_t kDecodeSlot = 4;

// Clients are addressed as actors of a rank that no MPI rank can have: slot = session number.
inline constexpr uint32_t kClientRank = 0xFFFFFFFFu;

// Incarnation 0 in `to` means "whoever lives there now" (used before a peer's life is known).
inline constexpr uint32_t kAnyIncarnation = 0;

}  // namespace baton
