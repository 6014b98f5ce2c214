#include <algorithm>
#include <new>
#include <utility>

#include "runtime/base/check.h"
#include "transport/mpi/data_thread.h"
#include "transport/mpi/piece_buffer.h"

// The receiving side of the data thread. No receive is posted for an expected piece: its message
// waits in MPI until there is a buffer for it, and is then matched and received. So only what has
// begun can ever be stuck.
namespace baton {
namespace {

// Of one peer at a time, so that what arrives is still in the cache when it is stored.
constexpr uint32_t kPiecesPerPeer = 2;
constexpr uint64_t kBytesPerPeer = 1 << 20;  // a piece that is larger comes alone
constexpr uint32_t kStraysPerPeer = 4;       // each with a buffer of its own

}  // namespace

void MpiMover::DataThread::expect(const std::shared_ptr<const KvTransfer>& transfer) {
  landed_.reserve(transfer->plan ? transfer->plan->piece_bytes_largest() : 0);
  for (uint32_t i = 0; i < transfer->pieces.size(); ++i) {
    const Place place{transfer->peer.rank, transfer->pieces[i].tag};
    CHECK_MSG(expected_.emplace(place, Waiting{transfer, i}).second, "a tag is used once");
  }
}

void MpiMover::DataThread::drop_expected(const std::function<bool(const KvTransfer&)>& which,
                                         const std::string& reason) {
  for (auto at = expected_.begin(); at != expected_.end();) {
    const Waiting& waiting = at->second;
    if (!which(*waiting.transfer)) {
      ++at;
      continue;
    }
    end_unposted(KvDirection::receive, waiting.transfer->transfer, waiting.piece().piece, reason);
    at = expected_.erase(at);
  }
}

// Begins with messages that have come, each peer in its turn.
bool MpiMover::DataThread::take_in() {
  int found = 0;
  MPI_Status seen;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, &seen);
  if (found == 0) return false;
  bool any = false;
  const uint32_t ranks = world_.size();
  first_peer_ = (first_peer_ + 1) % ranks;
  for (uint32_t i = 0; i < ranks; ++i) any |= take_in_from((first_peer_ + i) % ranks);
  return any;
}

// A message is sent only after its piece was expected, and expecting comes before the sender can
// know: so whatever is not expected when all jobs that were queued have been performed will never
// be wanted.
bool MpiMover::DataThread::take_in_from(uint32_t rank) {
  for (bool any = false;; any = true) {
    int found = 0;
    MPI_Status seen;
    MPI_Iprobe(static_cast<int>(rank), MPI_ANY_TAG, communicator_, &found, &seen);
    if (found == 0) return any;
    const Place place{rank, static_cast<uint32_t>(seen.MPI_TAG)};
    auto expected = expected_.find(place);
    if (expected == expected_.end()) {
      take_jobs();
      expected = expected_.find(place);
    }
    if (expected == expected_.end()) {
      if (!take_in_stray(seen)) return any;
      continue;
    }
    if (!may_begin(expected->second.piece(), rank)) return any;
    const Waiting taken = std::move(expected->second);
    expected_.erase(expected);
    receive(taken, seen);
  }
}

// Another piece of this peer may come. Its share of the buffers comes back when what has arrived is
// stored; if others hold all of them, it goes without.
bool MpiMover::DataThread::may_begin(const KvPiece& piece, uint32_t rank) const {
  const auto at = inflow_.find(rank);
  if (at != inflow_.end()) {
    const Inflow& inflow = at->second;
    if (inflow.pieces >= kPiecesPerPeer) return false;
    if (inflow.bytes > 0 && inflow.bytes + piece.bytes > kBytesPerPeer) return false;
  }
  return landed_.available(rank) || landed_.all_taken();
}

void MpiMover::DataThread::receive(const Waiting& expected, const MPI_Status& seen) {
  const KvTransfer& transfer = *expected.transfer;
  const KvPiece& piece = expected.piece();
  int bytes = 0;
  MPI_Get_count(&seen, MPI_BYTE, &bytes);
  const uint64_t wanted = piece.bytes + sizeof(uint64_t);
  if (static_cast<uint64_t>(bytes) != wanted) {  // what follows takes it for a stray
    return end_unposted(
        KvDirection::receive, transfer.transfer, piece.piece,
        std::to_string(bytes) + " bytes arrived, " + std::to_string(wanted) + " were expected");
  }
  Operation operation;
  operation.kind = Operation::Kind::receive;
  operation.transfer = transfer.transfer;
  operation.peer = transfer.peer;
  operation.piece = piece;
  operation.digests = transfer.plan->terms.digests;
  operation.target = target_stretches(store_, transfer, piece);
  Stretches memory = operation.target;
  if (landed_.available(transfer.peer.rank)) {
    operation.staged = landed_.take(transfer.peer.rank);
    memory = {operation.staged.span(piece.bytes)};
  }
  take_trailer(operation);
  const PieceBuffer buffer(memory, *operation.trailer);
  ++inflow_[transfer.peer.rank].pieces;
  inflow_[transfer.peer.rank].bytes += piece.bytes;
  take(std::move(operation), seen, MPI_BOTTOM, 1, buffer.type());
}

bool MpiMover::DataThread::take_in_stray(const MPI_Status& seen) {
  const auto rank = static_cast<uint32_t>(seen.MPI_SOURCE);
  if (inflow_[rank].strays >= kStraysPerPeer) return false;
  int bytes = 0;
  MPI_Get_count(&seen, MPI_BYTE, &bytes);
  Operation operation;
  operation.kind = Operation::Kind::stray;
  operation.peer.rank = rank;
  if (bytes >= 0) operation.scratch.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
  if (!operation.scratch) return false;  // no memory now: it is found again later
  ++inflow_[rank].strays;
  void* const memory = operation.scratch.get();
  return take(std::move(operation), seen, memory, bytes, MPI_BYTE);
}

// Only this thread takes messages, so the one that was seen is still there.
bool MpiMover::DataThread::take(Operation operation, const MPI_Status& seen, void* memory,
                                int count, MPI_Datatype type) {
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  int found = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  int code = MPI_Improbe(seen.MPI_SOURCE, seen.MPI_TAG, communicator_, &found, &message, &status);
  if (code == MPI_SUCCESS && found != 0) {
    code = MPI_Imrecv(memory, count, type, &message, &request);
  }
  if (code == MPI_SUCCESS && found != 0) {
    requests_.push_back(request);
    operations_.push_back(std::move(operation));
    return true;
  }
  off_the_wire(operation);
  if (operation.kind == Operation::Kind::receive) {
    finish(operation, {false, mpi_error_text(code), 0, 0});
  }
  give_back(operation, true);
  return false;
}

// A piece is all there. What came straight into its blocks is digested at once, while the end of it
// is in the cache; what came into a buffer is digested and stored in its turn.
void MpiMover::DataThread::arrive(Operation operation) {
  bytes_received_ += operation.piece.bytes;
  if (operation.staged.bytes) {
    PieceWriter writer(std::move(operation.target));
    arrived_.push_back({std::move(operation), std::move(writer), 0, {}});
    return;
  }
  const uint64_t digest = operation.digests ? digest_of(operation.target) : 0;
  finish(operation, {true, {}, digest, *operation.trailer});
  give_back(operation, false);
}

// Goes on with the first piece that has come into a buffer. False if there is none.
bool MpiMover::DataThread::store_next() {
  if (arrived_.empty()) return false;
  Arrived& arrived = arrived_.front();
  Operation& operation = arrived.operation;
  const std::span<const std::byte> bytes = operation.staged.span(operation.piece.bytes);
  const size_t end = std::min(arrived.stored + kTurnBytes, bytes.size());
  while (arrived.stored < end) {
    const auto slice = bytes.subspan(arrived.stored, std::min(kSliceBytes, end - arrived.stored));
    if (operation.digests) arrived.hasher.add(slice);
    arrived.writer.write(slice);
    arrived.stored += slice.size();
  }
  if (end < bytes.size()) return true;
  CHECK(arrived.writer.ended());
  const uint64_t digest = operation.digests ? arrived.hasher.value() : 0;
  finish(operation, {true, {}, digest, *operation.trailer});
  give_back(operation, false);
  arrived_.pop_front();
  return true;
}

}  // namespace baton
