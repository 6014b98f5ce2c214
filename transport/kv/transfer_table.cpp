#include "transport/kv/transfer_table.h"

#include <algorithm>

#include "runtime/actor/wire.h"

namespace baton {
namespace {

std::string body_of(KvDirection direction, TransferId transfer, uint32_t piece, const PieceEnd& end,
                    Micros elapsed) {
  if (direction == KvDirection::send) {
    return encode_body(KvSent{transfer, piece, end.ok, end.reason, elapsed});
  }
  return encode_body(KvReceived{transfer, piece, end.ok, end.reason, end.digest, end.sent_digest});
}

}  // namespace

Result<void> TransferTable::open(KvDirection direction, const KvTransfer& transfer, ActorId owner,
                                 Micros now) {
  if (transfer.pieces.empty()) return {};
  if (transfer.pieces.size() > pieces_max_) {
    return Error{ErrorCode::unsupported, "the transfer has " +
                                             std::to_string(transfer.pieces.size()) +
                                             " pieces, of which " + std::to_string(pieces_max_) +
                                             " may be under way at a time"};
  }
  const std::lock_guard lock(mutex_);
  if (count(direction) + transfer.pieces.size() > pieces_max_) {
    return Error{ErrorCode::busy, std::to_string(count(direction)) + " pieces are under way and " +
                                      std::to_string(transfer.pieces.size()) +
                                      " more would exceed the limit of " +
                                      std::to_string(pieces_max_)};
  }
  auto [at, inserted] = handles_.try_emplace(Key{direction, transfer.transfer});
  if (!inserted) {
    return Error{ErrorCode::conflict,
                 "transfer " + std::to_string(transfer.transfer.value) + " is under way already"};
  }
  Handle& handle = at->second;
  handle.owner = owner;
  handle.request = transfer.request;
  handle.epoch = transfer.epoch;
  handle.opened_at = now;
  for (const KvPiece& piece : transfer.pieces) handle.open[piece.piece] = piece.blocks;
  count(direction) += handle.open.size();
  return {};
}

std::optional<Mail> TransferTable::end(KvDirection direction, TransferId transfer, uint32_t piece,
                                       const PieceEnd& end, Micros now) {
  const std::lock_guard lock(mutex_);
  auto at = handles_.find(Key{direction, transfer});
  if (at == handles_.end()) return std::nullopt;
  Handle& handle = at->second;
  if (handle.open.erase(piece) == 0) return std::nullopt;
  --count(direction);
  Mail mail;
  mail.envelope.kind = direction == KvDirection::send ? KvSent::kind : KvReceived::kind;
  mail.envelope.from = ActorId{handle.owner.rank, 0, kAnyIncarnation};
  mail.envelope.to = handle.owner;
  mail.envelope.request = handle.request;
  mail.envelope.epoch = handle.epoch;
  mail.body = body_of(direction, transfer, piece, end, now - handle.opened_at);
  if (handle.open.empty()) handles_.erase(at);
  return mail;
}

bool TransferTable::is_open(KvDirection direction, TransferId transfer, uint32_t piece) const {
  const std::lock_guard lock(mutex_);
  auto at = handles_.find(Key{direction, transfer});
  return at != handles_.end() && at->second.open.contains(piece);
}

size_t TransferTable::open_pieces(KvDirection direction) const {
  const std::lock_guard lock(mutex_);
  return direction == KvDirection::send ? sends_ : receives_;
}

std::vector<BlockId> TransferTable::busy_blocks() const {
  std::vector<BlockId> blocks;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, handle] : handles_) {
      for (const auto& [piece, held] : handle.open) {
        blocks.insert(blocks.end(), held.begin(), held.end());
      }
    }
  }
  std::sort(blocks.begin(), blocks.end());
  blocks.erase(std::unique(blocks.begin(), blocks.end()), blocks.end());
  return blocks;
}

}  // namespace baton
