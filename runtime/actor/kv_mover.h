#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/base/result.h"
#include "runtime/layout/transfer.h"

namespace baton {

enum class KvDirection : uint8_t { send = 0, receive = 1 };
constexpr bool enum_valid(KvDirection direction) {
  return direction <= KvDirection::receive;
}

// One message of the data plane: a run of the target's blocks on one route of the plan, in the
// target's stored form. Piece i of a transfer has tag `tag_first + i`; a tag is never used twice.
// Both sides compute the pieces; nothing that a peer says of them is trusted.
struct KvPiece {
  uint32_t piece = 0;
  uint32_t tag = 0;
  std::vector<BlockId> blocks;  // that it touches, of the side that names them, in table order
  uint64_t bytes = 0;
  TransferPiece part;
  BATON_FIELDS(piece, tag, blocks, bytes, part)
};

// Tokens [from_token, tokens) of a request on their way between two instances, as one side sees
// them. Its pieces are those of divide_pieces().
struct KvTransfer {
  TransferId transfer;
  ActorId peer;  // the other side's actor
  RequestId request;
  Epoch epoch;
  // Shared with the data thread, which may use it longer than the actor lives; null for a drain.
  std::shared_ptr<const RoutedPlan> plan;
  uint32_t from_token = 0;
  uint32_t tokens = 0;
  std::vector<BlockId> blocks;  // this side's table, from token 0 on; one for all its ranks
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
struct KvReceived {
  static constexpr MsgKind kind = MsgKind::kv_received;
  TransferId transfer;
  uint32_t piece = 0;
  bool ok = false;
  std::string reason;
  uint64_t digest = 0;       // XXH3 of the bytes that are in the blocks now
  uint64_t sent_digest = 0;  // of the bytes as they were sent; it came behind them
  BATON_FIELDS(transfer, piece, ok, reason, digest, sent_digest)
};

// Moves KV blocks between two instances' pools, for all ranks of its own. Owner thread only; the
// bytes are packed, digested and moved elsewhere, and each piece ends in exactly one KvSent or
// KvReceived mail to the actor that started it. Blocks named in a transfer may not go back to their
// pool before that: the quarantine.
class KvMover {
 public:
  virtual ~KvMover() = default;

  // Makes room for what transfers by this plan pack on this side, so that none waits for memory.
  virtual void prepare(std::shared_ptr<const RoutedPlan> plan) = 0;

  // Posts the receives of a transfer. Fails with busy when too many are posted.
  virtual Result<void> expect(const KvTransfer& transfer, ActorId owner) = 0;
  // On blocks that no step writes any more.
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
  // Blocks of this instance's pools under pieces that have not ended; an actor that was rebuilt
  // keeps them out of its new pool until they are gone from this list.
  virtual std::vector<BlockId> busy_blocks() const = 0;
};

}  // namespace baton
