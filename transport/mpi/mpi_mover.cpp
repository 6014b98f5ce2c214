#include "transport/mpi/mpi_mover.h"

#include <string>
#include <utility>

#include "transport/mpi/data_thread.h"

namespace baton {

MpiMover::MpiMover(MpiWorld& world, BlockStore store, std::function<void(Mail)> deliver)
    : store_(std::move(store)),
      ranks_(world.size()),
      tag_max_(static_cast<uint32_t>(MpiAccess::tag_max(world))),
      data_(std::make_unique<DataThread>(world, store_, std::move(deliver))) {}

MpiMover::~MpiMover() = default;

Result<void> MpiMover::start(bool sends, const KvTransfer& transfer, ActorId owner) {
  auto invalid = [&](const std::string& text) {
    return Error{ErrorCode::invalid_argument,
                 "transfer " + std::to_string(transfer.transfer.value) + " " + text};
  };
  const KvDirection direction = sends ? KvDirection::send : KvDirection::receive;
  Result<void> sound = check_transfer(transfer, direction, store_);
  if (!sound.ok()) return sound;
  if (transfer.peer.rank >= ranks_) {
    return invalid("names rank " + std::to_string(transfer.peer.rank) + " of " +
                   std::to_string(ranks_));
  }
  for (const KvPiece& piece : transfer.pieces) {
    if (piece.tag > tag_max_) {
      return invalid("uses tag " + std::to_string(piece.tag) + ", MPI has tags up to " +
                     std::to_string(tag_max_));
    }
    if (piece.bytes > INT32_MAX - sizeof(uint64_t)) {
      return invalid("has a piece of " + std::to_string(piece.bytes) +
                     " bytes, one MPI message has less than 2147483647");
    }
  }
  Result<void> opened = data_->table.open(direction, transfer, owner, steady_micros());
  if (!opened.ok()) return opened;
  MpiJob job;
  job.kind = sends ? MpiJob::Kind::send : MpiJob::Kind::expect;
  job.transfer = std::make_shared<const KvTransfer>(transfer);
  if (data_->push(std::move(job))) return {};
  for (const KvPiece& piece : transfer.pieces) {  // nobody was told: the caller hears it here
    data_->table.end(direction, transfer.transfer, piece.piece, {}, steady_micros());
  }
  return Error{ErrorCode::busy, "the data plane has too many jobs waiting; try again"};
}

void MpiMover::prepare(std::shared_ptr<const RoutedPlan> plan) {
  MpiJob job;
  job.kind = MpiJob::Kind::prepare;
  job.plan = std::move(plan);
  data_->push(std::move(job));
}

Result<void> MpiMover::expect(const KvTransfer& transfer, ActorId owner) {
  return start(false, transfer, owner);
}

Result<void> MpiMover::send(const KvTransfer& transfer, ActorId owner) {
  return start(true, transfer, owner);
}

void MpiMover::cancel(TransferId transfer) {
  data_->take_back(transfer);
  MpiJob job;
  job.kind = MpiJob::Kind::cancel;
  job.cancelled = transfer;
  data_->push(std::move(job));
}

// Its messages are stray, as no receive is posted for them: look for them now.
void MpiMover::drain(const KvTransfer&) {
  data_->push(MpiJob{});
}

void MpiMover::peer_down(uint32_t rank, uint32_t incarnation) {
  MpiJob job;
  job.kind = MpiJob::Kind::peer_down;
  job.rank = rank;
  job.incarnation = incarnation;
  data_->push(std::move(job));
}

std::vector<BlockId> MpiMover::busy_blocks() const {
  return data_->table.busy_blocks();
}

MpiMoverCounters MpiMover::counters() const {
  return data_->counters();
}

}  // namespace baton
