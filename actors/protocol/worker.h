#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/common.h"
#include "runtime/layout/geometry.h"

// Between the scheduler and every worker (a prefill or a decode actor): joining, beats, leaving.

namespace baton {

enum class Role : uint8_t { prefill = 0, decode = 1 };
constexpr bool enum_valid(Role role) {
  return role <= Role::decode;
}
inline const char* role_name(Role role) {
  return role == Role::prefill ? "prefill" : "decode";
}

// What a worker can hold.
struct Capacity {
  uint32_t slots = 0;        // decode slots; 0 for prefill
  uint32_t blocks = 0;       // KV blocks of the pool
  uint32_t context_max = 0;  // positions of one sequence
  uint32_t step_tokens = 0;  // tokens of one engine step
  BATON_FIELDS(slots, blocks, context_max, step_tokens)
};

// Worker -> scheduler, at start and again when the scheduler asks (Refused with code stale).
struct Register {
  static constexpr MsgKind kind = MsgKind::register_worker;
  Role role = Role::prefill;
  InstanceId instance;
  std::string host;
  std::string cores;  // for people: "cpu 0-1"
  uint64_t numerics_id = 0;
  uint64_t model_hash = 0;
  uint64_t weights_version = 0;
  KvGeometry geometry;
  Capacity capacity;
  BATON_FIELDS(role, instance, host, cores, numerics_id, model_hash, weights_version, geometry,
               capacity)
};

// Scheduler -> worker: joined.
struct Welcome {
  static constexpr MsgKind kind = MsgKind::welcome;
  uint64_t boot_epoch = 0;
  BATON_FIELDS(boot_epoch)
};

// Scheduler -> worker: not joined, and why (another model, a layout that no plan can serve). With
// code stale: you were declared dead; drop all state and register again.
struct Refused {
  static constexpr MsgKind kind = MsgKind::refused;
  Refusal refusal;
  BATON_FIELDS(refusal)
};

// Worker -> scheduler every beat period, sent from the loop's own timer: a stuck loop stops it.
struct Beat {
  static constexpr MsgKind kind = MsgKind::beat;
  uint64_t seq = 0;
  uint64_t echo = 0;  // seq of the last BeatAck: both ways work
  uint64_t step = 0;  // engine steps done
  uint32_t slots_free = 0;
  uint32_t blocks_free = 0;
  uint32_t blocks_quarantined = 0;
  uint32_t queued = 0;
  uint32_t running = 0;
  std::vector<NamedCount> counters{};  // since its life began, for the status
  BATON_FIELDS(seq, echo, step, slots_free, blocks_free, blocks_quarantined, queued, running,
               counters)
};

struct BeatAck {
  static constexpr MsgKind kind = MsgKind::beat_ack;
  uint64_t seq = 0;
  BATON_FIELDS(seq)
};

// Scheduler -> all: a life has ended; drop what is for it, end transfers with it.
struct PeerDown {
  static constexpr MsgKind kind = MsgKind::peer_down;
  uint32_t rank = 0;
  uint32_t incarnation = 0;
  BATON_FIELDS(rank, incarnation)
};

// Scheduler -> worker: finish what runs, take nothing new, then say Drained.
struct Drain {
  static constexpr MsgKind kind = MsgKind::drain;
  bool reserved = false;
  BATON_FIELDS(reserved)
};

struct Drained {
  static constexpr MsgKind kind = MsgKind::drained;
  bool reserved = false;
  BATON_FIELDS(reserved)
};

}  // namespace baton
