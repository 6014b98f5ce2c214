#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/protocol/decode.h"
#include "runtime/actor/kv_mover.h"
#include "runtime/base/time.h"
#include "runtime/engine/block_pool.h"

namespace baton {

// One piece of a transfer on the receiving side.
struct IncomingPiece {
  KvPiece expected;        // block ids, tag and bytes as computed here, never as told
  bool open = true;        // its receive has not ended: its blocks may be written
  bool withdrawn = false;  // its receive was taken back before anything arrived
  bool arrived = false;
  bool intact = false;  // what arrived has the digest that came with it

  bool verified() const { return arrived && intact; }
  bool corrupt() const { return arrived && !intact; }
};

// A reservation, from Reserve until its sequence runs or its blocks are home.
struct Incoming {
  TransferId transfer;
  RequestId request;
  Epoch epoch;
  ActorId source;
  std::vector<SlotLease> slots;            // one per choice that runs
  std::shared_ptr<const RoutedPlan> plan;  // from the source; the mover's thread uses it too
  uint32_t tokens = 0;                     // positions that are here when it has come
  // Positions that were here before: whole blocks, the leading ones of `blocks`, shared with the
  // prefix cache.
  uint32_t from_token = 0;
  PrefixNames prefix;              // of their blocks
  std::vector<BlockLease> blocks;  // for these, in table order, and those for what is decoded
  uint64_t weights = 0;            // version that it runs on
  std::vector<IncomingPiece> pieces;
  std::optional<Adopt> adopt;

  bool local = false;    // nothing is transferred: Start is awaited
  bool posted = false;   // KvPost has come: the sender's pieces are under way
  bool closing = false;  // not wanted any more; waits for its receives to end
  Micros posted_us = 0;
  Micros progress_us = 0;  // when it last moved

  uint32_t pieces_open() const;
  bool complete() const;  // announced, and every piece is here and right
  bool corrupt() const;   // a piece is here and wrong
  KvTransfer as_transfer() const;
  std::vector<KvPiece> withdrawn() const;
};

// Fails when the hand-off record does not belong to the reservation. Pure.
Result<void> check_adopt(const Incoming& incoming, const Adopt& adopt);

}  // namespace baton
