#include <algorithm>
#include <utility>

#include "transport/mpi/data_thread.h"
#include "transport/mpi/piece_buffer.h"

// The sending side of the data thread.
namespace baton {
namespace {

// To one peer at a time: what is fresh in the cache from being packed should leave while it is.
// What waits here can still be withdrawn.
constexpr uint32_t kSendsPerPeer = 2;

}  // namespace

// A piece goes from a buffer. One that needs no packing does without if others hold all of them.
bool MpiMover::DataThread::can_go(const Waiting& waiting) const {
  const KvTransfer& transfer = *waiting.transfer;
  const uint32_t rank = transfer.peer.rank;
  const auto under_way = sends_to_.find(rank);
  if (under_way != sends_to_.end() && under_way->second >= kSendsPerPeer) return false;
  const bool straight = !transfer.plan->routes[waiting.piece().part.route].source_runs.empty();
  return packed_.available(rank) || (straight && packed_.all_taken());
}

// Goes on with the piece whose turn it is, or takes the first one that can go. False if there is
// nothing to do.
bool MpiMover::DataThread::send_next() {
  if (!packing_) {
    const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                   [this](const Waiting& waiting) { return can_go(waiting); });
    if (next == waiting_.end()) return false;
    begin_send(*next);
    waiting_.erase(next);
  }
  if (!prepare_slice(*packing_)) return true;
  post_send();
  packing_.reset();
  return true;
}

void MpiMover::DataThread::begin_send(const Waiting& waiting) {
  const KvTransfer& transfer = *waiting.transfer;
  const KvPiece& piece = waiting.piece();
  Packing& packing = packing_.emplace();
  packing.waiting = waiting;
  if (packed_.available(transfer.peer.rank)) {
    packing.staged = packed_.take(transfer.peer.rank);
    packing.reader.emplace(store_, *packing.waiting.transfer, piece);
    packing.source = {packing.staged.span(piece.bytes)};
  } else {
    packing.source = source_stretches(store_, transfer, piece);
  }
}

// True when the whole piece is packed and digested.
bool MpiMover::DataThread::prepare_slice(Packing& packing) {
  const bool digests = packing.waiting.transfer->plan->terms.digests;
  if (!packing.reader) {
    if (digests) packing.digest = digest_of(packing.source);
    return true;
  }
  const std::span<std::byte> bytes = packing.source.front();
  const size_t slice_bytes = std::max(kSliceBytes, packing.reader->slice_bytes_min());
  const size_t end = std::min(packing.packed + kTurnBytes, bytes.size());
  while (packing.packed < end) {
    const std::span<std::byte> rest = bytes.subspan(packing.packed);
    const size_t got = packing.reader->read(rest.first(std::min(rest.size(), slice_bytes)));
    if (digests) packing.hasher.add(rest.first(got));
    packing.packed += got;
  }
  if (packing.packed < bytes.size()) return false;
  if (digests) packing.digest = packing.hasher.value();
  return true;
}

void MpiMover::DataThread::post_send() {
  Packing& packing = *packing_;
  const KvTransfer& transfer = *packing.waiting.transfer;
  Operation operation;
  operation.kind = Operation::Kind::send;
  operation.transfer = transfer.transfer;
  operation.peer = transfer.peer;
  operation.piece = packing.waiting.piece();
  operation.staged = std::move(packing.staged);
  take_trailer(operation);
  *operation.trailer = packing.digest;
  const PieceBuffer buffer(packing.source, *operation.trailer);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(MPI_BOTTOM, 1, buffer.type(), static_cast<int>(operation.peer.rank),
                             static_cast<int>(operation.piece.tag), communicator_, &request);
  if (code != MPI_SUCCESS) {
    finish(operation, {false, mpi_error_text(code), 0, 0});
    return give_back(operation, false);
  }
  ++sends_to_[operation.peer.rank];
  requests_.push_back(request);
  operations_.push_back(std::move(operation));
}

size_t MpiMover::DataThread::drop_waiting(const std::function<bool(const KvTransfer&)>& which,
                                          const std::string& reason) {
  size_t dropped = 0;
  const auto drop = [&](const Waiting& waiting) {
    end_unposted(KvDirection::send, waiting.transfer->transfer, waiting.piece().piece, reason);
    ++dropped;
  };
  if (packing_ && which(*packing_->waiting.transfer)) {
    drop(packing_->waiting);
    if (packing_->staged.bytes) packed_.give_back(std::move(packing_->staged), false);
    packing_.reset();
  }
  std::deque<Waiting> kept;
  for (const Waiting& waiting : waiting_) {
    if (which(*waiting.transfer)) {
      drop(waiting);
    } else {
      kept.push_back(waiting);
    }
  }
  waiting_.swap(kept);
  return dropped;
}

}  // namespace baton
