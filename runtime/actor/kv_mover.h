#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/base/result.h"

namespace baton {

// One message of the data plane: whole blocks between equal placements, in table order.
// Piece i of a transfer has tag `tag_first + i`; a tag is never used twice.
struct KvPiece {
  uint32_t piece = 0;
  uint32_t tag = 0;
  std::vector<BlockId> blocks;  // of the side that names them
  uint64_t bytes = 0;           // always recomputed from the geometry by the receiver
  uint64_t digest = 0;          // XXH3 of the bytes as sent; 0 on the side that receives
  BATON_FIELDS(piece, tag, blocks, bytes, digest)
};

struct KvTransfer {
  TransferId transfer;
  ActorId peer;  // the other side's actor
  RequestId request;
  Epoch epoch;
  std::vector<KvPiece> pieces;
};

// Terminal outcome of one piece on the sending side: its blocks are no longer read.
struct KvSent {
  static constexpr MsgKind kind = MsgKind::kv_sent;
  TransferId transfer;
  uint32_t piece = 0;
  bool ok = false;
  std::string reason;
  int64_t elapsed_us = 0;
  BATON_FIELDS(transfer, piece, ok, reason, elapsed_us)
};

// Terminal outcome of one piece on the receiving side: its blocks are no longer written.
// `digest` is that of the bytes which arrived; the actor compares it with KvPost's.
struct KvReceived {
  static constexpr MsgKind kind = MsgKind::kv_received;
  TransferId transfer;
  uint32_t piece = 0;
  bool ok = false;
  std::string reason;
  uint64_t digest = 0;
  BATON_FIELDS(transfer, piece, ok, reason, digest)
};

// Moves KV blocks between two ranks' pools. Owner thread only; the bytes move elsewhere and each
// piece ends in exactly one KvSent or KvReceived mail to the actor that started it. Blocks named
// in a transfer may not go back to their pool before that: the quarantine.
class KvMover {
 public:
  virtual ~KvMover() = default;

  // The most bytes one piece may have.
  virtual uint64_t piece_bytes_max() const = 0;

  // Posts the receives of a transfer. Fails with busy when too many are posted.
  virtual Result<void> expect(const KvTransfer& transfer, ActorId owner) = 0;
  // Digests each piece's bytes; call before KvPost, on blocks that no step writes any more.
  virtual uint64_t digest(const KvPiece& piece) = 0;
  virtual Result<void> send(const KvTransfer& transfer, ActorId owner) = 0;

  // Ends a transfer early. Pieces that can be withdrawn end at once with ok = false; one that is
  // under way ends when its peer is known to be done with it. Unknown ids are ignored.
  virtual void cancel(TransferId transfer) = 0;
  // Takes in and throws away the bytes of a transfer that is no longer wanted, so that the sender's
  // pieces end. Needs no blocks.
  virtual void drain(const KvTransfer& transfer) = 0;
  // The peer's life (and every earlier one) is over: sends to it end now; receives that cannot be
  // withdrawn stay open and are counted.
  virtual void peer_down(uint32_t rank, uint32_t incarnation) = 0;
  // Blocks of this rank's pool under pieces that have not ended; an actor that was rebuilt keeps
  // them out of its new pool until they are gone from this list.
  virtual std::vector<BlockId> busy_blocks() const = 0;
};

}  // namespace baton
