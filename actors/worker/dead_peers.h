#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "runtime/actor/actor_id.h"

namespace baton {

// Lives of other workers that have ended: what was asked on their behalf and arrives late (their
// PeerDown has overtaken it) must not be begun. One entry a rank, so bounded by their number. A
// worker actor owns one; owner thread only.
class DeadPeers {
 public:
  // Every actor of the rank, up to this incarnation.
  void note_rank(uint32_t rank, uint32_t incarnation) { note({rank, kEverySlot}, incarnation); }
  void note_actor(const ActorId& actor) { note({actor.rank, actor.slot}, actor.incarnation); }
  bool covers(const ActorId& actor) const {
    return ended({actor.rank, kEverySlot}, actor) || ended({actor.rank, actor.slot}, actor);
  }

 private:
  using Place = std::pair<uint32_t, uint32_t>;  // rank, slot
  static constexpr uint32_t kEverySlot = 0;

  void note(Place place, uint32_t incarnation) {
    uint32_t& last = last_[place];
    if (incarnation > last) last = incarnation;
  }
  bool ended(Place place, const ActorId& actor) const {
    const auto found = last_.find(place);
    return found != last_.end() && actor.incarnation <= found->second;
  }

  std::map<Place, uint32_t> last_;
};

}  // namespace baton
