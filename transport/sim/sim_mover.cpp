#include "transport/sim/sim_mover.h"

#include <utility>

#include "transport/kv/pieces.h"

namespace baton {

SimMover::SimMover(SimFabric& fabric, SimHost& host, BlockStore store, const Options& options)
    : fabric_(fabric),
      host_(host),
      store_(std::move(store)),
      options_(options),
      table_(options.pieces_max) {}

SimMover::~SimMover() {
  fabric_.leave(this);
}

Result<void> SimMover::expect(const KvTransfer& transfer, ActorId owner) {
  Result<void> sound = check_transfer(transfer, KvDirection::receive, store_);
  if (!sound.ok()) return sound;
  Result<void> opened = table_.open(KvDirection::receive, transfer, owner, host_.world().now());
  if (!opened.ok()) return opened;
  const auto shared = std::make_shared<const KvTransfer>(transfer);
  for (const KvPiece& piece : transfer.pieces) {
    fabric_.post_receive({transfer.peer.rank, host_.rank(), piece.tag}, half_of(shared, piece));
  }
  return opened;
}

Result<void> SimMover::send(const KvTransfer& transfer, ActorId owner) {
  Result<void> sound = check_transfer(transfer, KvDirection::send, store_);
  if (!sound.ok()) return sound;
  Result<void> opened = table_.open(KvDirection::send, transfer, owner, host_.world().now());
  if (!opened.ok()) return opened;
  const auto shared = std::make_shared<const KvTransfer>(transfer);
  for (const KvPiece& piece : transfer.pieces) {
    fabric_.post_send({host_.rank(), transfer.peer.rank, piece.tag}, half_of(shared, piece));
  }
  return opened;
}

SimFabric::Half SimMover::half_of(const std::shared_ptr<const KvTransfer>& transfer,
                                  const KvPiece& piece) {
  SimFabric::Half half;
  half.mover = this;
  half.rank = host_.rank();
  half.transfer = transfer->transfer;
  half.peer = transfer->peer;
  half.whole = transfer;
  half.piece = piece;
  return half;
}

void SimMover::cancel(TransferId transfer) {
  fabric_.withdraw(this, transfer);
}

void SimMover::drain(const KvTransfer& transfer) {
  for (const KvPiece& piece : transfer.pieces) {
    fabric_.drain({transfer.peer.rank, host_.rank(), piece.tag}, host_.rank());
  }
}

void SimMover::peer_down(uint32_t rank, uint32_t incarnation) {
  fabric_.peer_down(this, rank, incarnation);
}

void SimMover::finish(KvDirection direction, TransferId transfer, uint32_t piece,
                      const PieceEnd& end) {
  std::optional<Mail> mail = table_.end(direction, transfer, piece, end, host_.world().now());
  if (!mail) return;
  host_.later(host_.world().random().between(1, 50),
              [&host = host_, mail = std::move(*mail)] { host.post(mail); });
}

}  // namespace baton
