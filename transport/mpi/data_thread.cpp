#include "transport/mpi/data_thread.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr size_t kOpenPiecesMax = 4096;  // in each direction
constexpr size_t kJobsMax = 4096;
constexpr Micros kSpinUs = 200;  // after something happened
constexpr Micros kNapMinUs = 20;
constexpr Micros kNapMaxUs = 500;    // while messages are under way
constexpr Micros kIdleUs = 10'000;   // while none are
constexpr Micros kLookUs = 10'000;   // between two looks for strays
constexpr Micros kOverUs = 200'000;  // for what a dead sender left in shared memory
constexpr size_t kStraysMax = 4;     // taken in at a time, each with a buffer of its own

// The bytes of a piece as one buffer or, if its blocks are scattered, as one datatype.
class PieceBuffer {
 public:
  PieceBuffer(const BlockStore& store, const std::vector<BlockId>& blocks) {
    const size_t block_bytes = store.geometry.block_bytes();
    std::vector<MPI_Aint> at;
    bool contiguous = true;
    for (BlockId block : blocks) {
      const std::span<std::byte> bytes = store.bytes(block);
      CHECK(bytes.size() == block_bytes);
      MPI_Aint address = 0;
      MPI_Get_address(bytes.data(), &address);
      contiguous &= at.empty() || address == at.back() + static_cast<MPI_Aint>(block_bytes);
      at.push_back(address);
    }
    if (contiguous) {
      base = store.bytes(blocks.front()).data();
      count = static_cast<int>(block_bytes * blocks.size());
      return;
    }
    MPI_Type_create_hindexed_block(static_cast<int>(at.size()), static_cast<int>(block_bytes),
                                   at.data(), MPI_BYTE, &type);
    MPI_Type_commit(&type);
    owns_type_ = true;
  }
  ~PieceBuffer() {
    if (owns_type_) MPI_Type_free(&type);  // MPI keeps it as long as a message needs it
  }
  PieceBuffer(const PieceBuffer&) = delete;
  PieceBuffer& operator=(const PieceBuffer&) = delete;

  void* base = MPI_BOTTOM;
  int count = 1;
  MPI_Datatype type = MPI_BYTE;

 private:
  bool owns_type_ = false;
};

}  // namespace

Micros steady_micros() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

MpiMover::DataThread::DataThread(MpiWorld& world, const BlockStore& store,
                                 std::function<void(Mail)> deliver)
    : table(kOpenPiecesMax),
      store_(store),
      deliver_(std::move(deliver)),
      world_(world),
      communicator_(MpiAccess::kv_communicator(world)),
      thread_([this] { run(); }) {}

MpiMover::DataThread::~DataThread() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool MpiMover::DataThread::push(MpiJob job) {
  const bool refusable = job.kind == MpiJob::Kind::send || job.kind == MpiJob::Kind::expect;
  {
    const std::lock_guard lock(mutex_);
    if (refusable && jobs_.size() >= kJobsMax) return false;
    jobs_.push_back(std::move(job));
  }
  changed_.notify_all();
  return true;
}

void MpiMover::DataThread::take_back(TransferId transfer) {
  std::vector<MpiJob> taken;
  {
    const std::lock_guard lock(mutex_);
    std::deque<MpiJob> kept;
    for (MpiJob& job : jobs_) {
      const bool starts = job.kind == MpiJob::Kind::send || job.kind == MpiJob::Kind::expect;
      if (starts && job.transfer.transfer == transfer) {
        taken.push_back(std::move(job));
      } else {
        kept.push_back(std::move(job));
      }
    }
    jobs_.swap(kept);
  }
  for (const MpiJob& job : taken) {
    for (const KvPiece& piece : job.transfer.pieces) {
      Operation operation;
      operation.kind =
          job.kind == MpiJob::Kind::send ? Operation::Kind::send : Operation::Kind::receive;
      operation.transfer = transfer;
      operation.piece.piece = piece.piece;
      finish(operation, {false, "cancelled", 0});
    }
  }
}

MpiMoverCounters MpiMover::DataThread::counters() const {
  return {bytes_sent_,      bytes_received_,     strays_,
          sends_abandoned_, receives_abandoned_, receives_stuck_};
}

void MpiMover::DataThread::run() {
  prctl(PR_SET_TIMERSLACK, 1'000);  // nanoseconds: a nap of 20 us is one
  active_at_ = steady_micros();
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) break;
    }
    bool active = take_jobs();
    active |= test();
    if (steady_micros() >= look_at_) {
      active |= take_in_strays();
      active |= give_up_stuck();
    }
    rest(active);
  }
  abandon_all();
}

bool MpiMover::DataThread::take_jobs() {
  std::deque<MpiJob> jobs;
  {
    const std::lock_guard lock(mutex_);
    jobs.swap(jobs_);
  }
  for (const MpiJob& job : jobs) perform(job);
  return !jobs.empty();
}

void MpiMover::DataThread::perform(const MpiJob& job) {
  switch (job.kind) {
    case MpiJob::Kind::send:
    case MpiJob::Kind::expect: return post(job);
    case MpiJob::Kind::cancel: return cancel(job.transfer.transfer);
    case MpiJob::Kind::peer_down: return end_peer(job.rank, job.incarnation);
    case MpiJob::Kind::look: look_at_ = 0; return;
  }
}

void MpiMover::DataThread::post(const MpiJob& job) {
  for (const KvPiece& piece : job.transfer.pieces) {
    post_piece(job.kind == MpiJob::Kind::send, job.transfer, piece);
  }
}

void MpiMover::DataThread::post_piece(bool sends, const KvTransfer& transfer,
                                      const KvPiece& piece) {
  Operation operation;
  operation.kind = sends ? Operation::Kind::send : Operation::Kind::receive;
  operation.transfer = transfer.transfer;
  operation.peer = transfer.peer;
  operation.piece = piece;
  const PieceBuffer buffer(store_, piece.blocks);
  const int peer = static_cast<int>(transfer.peer.rank);
  const int tag = static_cast<int>(piece.tag);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      sends ? MPI_Isend(buffer.base, buffer.count, buffer.type, peer, tag, communicator_, &request)
            : MPI_Irecv(buffer.base, buffer.count, buffer.type, peer, tag, communicator_, &request);
  if (code != MPI_SUCCESS) return finish(operation, {false, mpi_error_text(code), 0});
  requests_.push_back(request);
  operations_.push_back(std::move(operation));
}

// A receive that nothing has arrived for is withdrawn; what MPI has begun goes on to its end.
void MpiMover::DataThread::cancel(TransferId transfer) {
  for (size_t i = 0; i < operations_.size(); ++i) {
    const Operation& operation = operations_[i];
    if (operation.kind == Operation::Kind::receive && operation.transfer == transfer) withdraw(i);
  }
  count_stuck();
}

void MpiMover::DataThread::end_peer(uint32_t rank, uint32_t incarnation) {
  for (size_t i = 0; i < operations_.size();) {
    Operation& operation = operations_[i];
    const bool life = incarnation == kAnyIncarnation || operation.peer.incarnation <= incarnation ||
                      operation.kind == Operation::Kind::stray;
    if (operation.peer.rank != rank || !life) {
      ++i;
    } else if (operation.kind == Operation::Kind::send) {
      ++sends_abandoned_;
      finish(operation, {false, "the peer is gone", 0});
      MPI_Request_free(&requests_[i]);
      remove(i);
    } else {
      withdraw(i++);
    }
  }
  count_stuck();
}

void MpiMover::DataThread::withdraw(size_t index) {
  Operation& operation = operations_[index];
  if (operation.withdrawn) return;
  operation.withdrawn = true;
  if (operation.kind == Operation::Kind::stray) --strays_under_way_;
  MPI_Cancel(&requests_[index]);
}

bool MpiMover::DataThread::test() {
  if (requests_.empty()) return false;
  done_.resize(requests_.size());
  statuses_.resize(requests_.size());
  int count = 0;
  const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                done_.data(), statuses_.data());
  if (count == MPI_UNDEFINED || count == 0) return false;
  for (int i = 0; i < count; ++i) {
    const auto index = static_cast<size_t>(done_[static_cast<size_t>(i)]);
    const MPI_Status& status = statuses_[static_cast<size_t>(i)];
    complete(operations_[index], code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : code, status);
  }
  std::sort(done_.begin(), done_.begin() + count, std::greater<>());
  for (int i = 0; i < count; ++i) remove(static_cast<size_t>(done_[static_cast<size_t>(i)]));
  count_stuck();
  return true;
}

void MpiMover::DataThread::complete(const Operation& operation, int code, MPI_Status status) {
  int cancelled = 0;
  MPI_Test_cancelled(&status, &cancelled);
  switch (operation.kind) {
    case Operation::Kind::stray:
      if (!operation.withdrawn) --strays_under_way_;
      ++strays_;
      return;
    case Operation::Kind::send:
      if (code != MPI_SUCCESS) return finish(operation, {false, mpi_error_text(code), 0});
      bytes_sent_ += operation.piece.bytes;
      return finish(operation, {true, {}, 0});
    case Operation::Kind::receive: break;
  }
  if (cancelled != 0) return finish(operation, {false, "cancelled", 0});
  if (code != MPI_SUCCESS) return finish(operation, {false, mpi_error_text(code), 0});
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (static_cast<uint64_t>(bytes) != operation.piece.bytes) {
    return finish(operation, {false,
                              std::to_string(bytes) + " bytes arrived, " +
                                  std::to_string(operation.piece.bytes) + " were expected",
                              0});
  }
  bytes_received_ += operation.piece.bytes;
  finish(operation, {true, {}, digest_blocks(store_, operation.piece.blocks)});
}

// Looks for messages that nobody waits for. A message is sent only after its receive was asked for,
// and asking comes before the sender can know: so whatever is still unmatched when all jobs that
// were queued have been performed will never be wanted.
bool MpiMover::DataThread::take_in_strays() {
  look_at_ = steady_micros() + kLookUs;
  bool any = false;
  while (strays_under_way_ < kStraysMax) {
    int found = 0;
    MPI_Status seen;
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, communicator_, &found, &seen);
    if (found == 0) return any;
    take_jobs();
    MPI_Iprobe(seen.MPI_SOURCE, seen.MPI_TAG, communicator_, &found, &seen);
    any = true;
    if (found != 0 && !take_in_stray(seen)) return any;
  }
  return any;
}

bool MpiMover::DataThread::take_in_stray(const MPI_Status& seen) {
  int bytes = 0;
  MPI_Get_count(&seen, MPI_BYTE, &bytes);
  Operation operation;
  operation.kind = Operation::Kind::stray;
  operation.peer.rank = static_cast<uint32_t>(seen.MPI_SOURCE);
  if (bytes >= 0) operation.scratch.reset(new (std::nothrow) std::byte[static_cast<size_t>(bytes)]);
  if (!operation.scratch) return false;  // no memory now: it is found again later
  MPI_Message message = MPI_MESSAGE_NULL;
  MPI_Status status;
  int found = 0;
  MPI_Improbe(seen.MPI_SOURCE, seen.MPI_TAG, communicator_, &found, &message, &status);
  if (found == 0) return true;
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Imrecv(operation.scratch.get(), bytes, MPI_BYTE, &message, &request);
  if (code != MPI_SUCCESS) return false;
  requests_.push_back(request);
  operations_.push_back(std::move(operation));
  ++strays_under_way_;
  return true;
}

void MpiMover::DataThread::finish(const Operation& operation, const PieceEnd& end) {
  const KvDirection direction =
      operation.kind == Operation::Kind::send ? KvDirection::send : KvDirection::receive;
  std::optional<Mail> mail =
      table.end(direction, operation.transfer, operation.piece.piece, end, steady_micros());
  if (mail) deliver_(std::move(*mail));
}

void MpiMover::DataThread::remove(size_t index) {
  requests_[index] = requests_.back();
  operations_[index] = std::move(operations_.back());
  requests_.pop_back();
  operations_.pop_back();
}

void MpiMover::DataThread::count_stuck() {
  receives_stuck_ = static_cast<uint64_t>(
      std::count_if(operations_.begin(), operations_.end(), [](const Operation& operation) {
        return operation.withdrawn && operation.kind == Operation::Kind::receive;
      }));
}

// A receive that has begun cannot be withdrawn, and when its sender has died it never ends. Once
// the sender's process is over, what it had put into shared memory is all that can still come, and
// MPI has taken that in after some time of testing: then nothing writes to the blocks any more. A
// sender that only sleeps, or that is on another host, is waited for.
bool MpiMover::DataThread::give_up_stuck() {
  const Micros now = steady_micros();
  bool any = false;
  for (size_t i = 0; i < operations_.size();) {
    Operation& operation = operations_[i];
    const bool stuck = operation.withdrawn && operation.kind == Operation::Kind::receive;
    if (stuck && operation.over_at == 0 && world_.process_is_over(operation.peer.rank)) {
      operation.over_at = now;
    }
    if (!stuck || operation.over_at == 0 || now - operation.over_at < kOverUs) {
      ++i;
      continue;
    }
    ++receives_abandoned_;
    finish(operation, {false, "the sender's process ended in the middle of it", 0});
    MPI_Request_free(&requests_[i]);
    remove(i);
    any = true;
  }
  if (any) count_stuck();
  return any;
}

void MpiMover::DataThread::rest(bool active) {
  const Micros now = steady_micros();
  if (active) {
    active_at_ = now;
    nap_us_ = kNapMinUs;
    return;
  }
  if (!requests_.empty() && now - active_at_ < kSpinUs) {
    sched_yield();
    return;
  }
  const Micros nap = requests_.empty() ? kIdleUs : nap_us_;
  nap_us_ = std::min(nap_us_ * 2, kNapMaxUs);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::microseconds(nap),
                    [this] { return stopping_ || !jobs_.empty(); });
}

void MpiMover::DataThread::abandon_all() {
  for (size_t i = 0; i < operations_.size(); ++i) {
    if (operations_[i].kind != Operation::Kind::send) MPI_Cancel(&requests_[i]);
    MPI_Request_free(&requests_[i]);
    (void)operations_[i].scratch.release();  // MPI may still write there
  }
}

}  // namespace baton
