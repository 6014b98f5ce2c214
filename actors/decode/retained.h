#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "actors/protocol/common.h"
#include "runtime/actor/actor_id.h"
#include "runtime/base/time.h"

namespace baton {

// What one choice of one request has sent to its gateway and the gateway has not acknowledged.
struct RetainedStream {
  Epoch epoch;
  ActorId gateway;
  uint32_t next = 0;   // seq of the next entry
  uint32_t acked = 0;  // entries below are with the client's side
  bool ended = false;
  Micros ended_us = 0;
  std::deque<TokenEntry> entries;  // [acked, next), and the end mark behind them

  uint32_t ahead() const { return next - acked; }
};

// Token entries until they are acknowledged, so that Resend can be answered, also after the slot of
// a sequence was freed. A stream that has ended is dropped when all of it is acknowledged or after
// a lease; a live one is bounded because its slot pauses. Owned by the decode actor.
class Retained {
 public:
  explicit Retained(size_t ended_max) : ended_max_(ended_max) {}

  // A sequence starts here; `acked` entries are committed already. Replaces an earlier life.
  void open(RequestId request, uint32_t choice, Epoch epoch, ActorId gateway, uint32_t acked);
  void add(const TokenEntry& entry);
  void end(RequestId request, uint32_t choice, Epoch epoch, Micros now);

  enum class Ack : uint8_t { taken, unknown };
  Ack ack(RequestId request, uint32_t choice, Epoch epoch, uint32_t next);
  // Entries from `next` on; empty if nothing is here.
  std::vector<TokenEntry> from(RequestId request, uint32_t choice, Epoch epoch,
                               uint32_t next) const;
  // Null if unknown or of another epoch.
  const RetainedStream* find(RequestId request, uint32_t choice, Epoch epoch) const;

  // All lives of the request up to this epoch; or one choice of one.
  void drop(RequestId request, Epoch epoch);
  void drop(RequestId request, uint32_t choice, Epoch epoch);
  // Streams that ended before `before` and were never acknowledged to their end.
  void drop_ended(Micros before);
  size_t size() const { return streams_.size(); }

 private:
  using Key = std::pair<RequestId, uint32_t>;
  using Streams = std::map<Key, RetainedStream>;
  RetainedStream* find_live(RequestId request, uint32_t choice, Epoch epoch);
  void trim_ended();

  const size_t ended_max_;
  Streams streams_;
};

}  // namespace baton
