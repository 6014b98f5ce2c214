#pragma once

#include <compare>
#include <cstdint>

#include "runtime/actor/actor_id.h"

namespace baton {

// The place of a worker: whichever life of it is meant. One process may host a prefill and a decode
// worker, so the rank alone does not do.
struct WorkerKey {
  uint32_t rank = 0;
  uint32_t slot = 0;
  friend constexpr auto operator<=>(const WorkerKey&, const WorkerKey&) = default;
};

constexpr WorkerKey worker_key(ActorId actor) {
  return {actor.rank, actor.slot};
}

}  // namespace baton
