#include "transport/mpi/data_thread.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr size_t kOpenPiecesMax = 16384;  // in each direction
constexpr size_t kJobsMax = 4096;
constexpr Micros kHotUs = 20;     // after something happened: looks at once again
constexpr Micros kSpinUs = 2000;  // then lets others run between two looks, and then naps
constexpr Micros kNapMinUs = 20;
constexpr Micros kNapMaxUs = 500;    // while messages are under way
constexpr Micros kIdleUs = 10'000;   // while none are
constexpr Micros kLookUs = 10'000;   // between two looks for what will not end
constexpr Micros kOverUs = 200'000;  // for what a dead sender left in shared memory

// Gives what this core has to its other thread, which may be the peer's.
void pause_core() {
#if defined(__x86_64__)
  for (int i = 0; i < 4; ++i) __builtin_ia32_pause();
#endif
}

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
      if (starts && job.transfer->transfer == transfer) {
        taken.push_back(std::move(job));
      } else {
        kept.push_back(std::move(job));
      }
    }
    jobs_.swap(kept);
  }
  for (const MpiJob& job : taken) {
    const KvDirection direction =
        job.kind == MpiJob::Kind::send ? KvDirection::send : KvDirection::receive;
    for (const KvPiece& piece : job.transfer->pieces) {
      end_unposted(direction, transfer, piece.piece, "cancelled");
    }
  }
}

void MpiMover::DataThread::end_unposted(KvDirection direction, TransferId transfer, uint32_t piece,
                                        const std::string& reason) {
  std::optional<Mail> mail =
      table.end(direction, transfer, piece, {false, reason, 0, 0}, steady_micros());
  if (mail) deliver_(std::move(*mail));
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
    active |= send_next();
    active |= store_next();
    active |= take_in();
    active |= test();
    if (steady_micros() >= look_at_) active |= give_up_stuck();
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
      // Nothing to do if it was prepared.
      if (job.transfer->plan) packed_.reserve(job.transfer->plan->piece_bytes_largest());
      for (uint32_t i = 0; i < job.transfer->pieces.size(); ++i) {
        waiting_.push_back({job.transfer, i});
      }
      return;
    case MpiJob::Kind::expect: return expect(job.transfer);
    case MpiJob::Kind::cancel: return cancel(job.cancelled);
    case MpiJob::Kind::peer_down: return end_peer(job.rank, job.incarnation);
    case MpiJob::Kind::prepare: return prepare(*job.plan);
    case MpiJob::Kind::look: look_at_ = 0; return;
  }
}

void MpiMover::DataThread::prepare(const RoutedPlan& plan) {
  if (plan.plan.source == store_.placement) packed_.reserve(plan.piece_bytes_largest());
  if (plan.plan.target == store_.placement) landed_.reserve(plan.piece_bytes_largest());
}

// What has not begun is withdrawn; what MPI has begun goes on to its end.
void MpiMover::DataThread::cancel(TransferId transfer) {
  const auto same = [&](const KvTransfer& waiting) { return waiting.transfer == transfer; };
  drop_waiting(same, "cancelled");
  drop_expected(same, "cancelled");
  for (Operation& operation : operations_) {
    if (operation.kind == Operation::Kind::receive && operation.transfer == transfer) {
      operation.withdrawn = true;
    }
  }
  count_stuck();
}

void MpiMover::DataThread::end_peer(uint32_t rank, uint32_t incarnation) {
  const auto gone = [&](const KvTransfer& waiting) {
    return waiting.peer.rank == rank &&
           (incarnation == kAnyIncarnation || waiting.peer.incarnation <= incarnation);
  };
  sends_abandoned_ += drop_waiting(gone, "the peer is gone");
  drop_expected(gone, "the peer is gone");
  for (size_t i = 0; i < operations_.size();) {
    Operation& operation = operations_[i];
    const bool life = incarnation == kAnyIncarnation || operation.peer.incarnation <= incarnation ||
                      operation.kind == Operation::Kind::stray;
    if (operation.peer.rank != rank || !life) {
      ++i;
    } else if (operation.kind == Operation::Kind::send) {
      ++sends_abandoned_;
      finish(operation, {false, "the peer is gone", 0, 0});
      MPI_Request_free(&requests_[i]);
      remove(i, true);
    } else {
      operation.withdrawn = true;
      ++i;
    }
  }
  count_stuck();
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
  for (int i = 0; i < count; ++i) {
    remove(static_cast<size_t>(done_[static_cast<size_t>(i)]), false);
  }
  count_stuck();
  return true;
}

void MpiMover::DataThread::complete(Operation& operation, int code, MPI_Status status) {
  switch (operation.kind) {
    case Operation::Kind::stray: ++strays_; return;
    case Operation::Kind::send:
      if (code != MPI_SUCCESS) return finish(operation, {false, mpi_error_text(code), 0, 0});
      bytes_sent_ += operation.piece.bytes;
      return finish(operation, {true, {}, 0, 0});
    case Operation::Kind::receive: break;
  }
  if (code != MPI_SUCCESS) return finish(operation, {false, mpi_error_text(code), 0, 0});
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  CHECK(static_cast<uint64_t>(bytes) == operation.piece.bytes + sizeof(uint64_t));
  Operation whole = std::move(operation);
  operation.trailer = nullptr;  // the rest was moved
  arrive(std::move(whole));
}

void MpiMover::DataThread::finish(const Operation& operation, const PieceEnd& end) {
  const KvDirection direction =
      operation.kind == Operation::Kind::send ? KvDirection::send : KvDirection::receive;
  std::optional<Mail> mail =
      table.end(direction, operation.transfer, operation.piece.piece, end, steady_micros());
  if (mail) deliver_(std::move(*mail));
}

// Directly behind a buffer's bytes, so that the message is one run of memory.
void MpiMover::DataThread::take_trailer(Operation& operation) {
  operation.trailer = operation.staged.trailer(operation.piece.bytes);
  if (!operation.trailer) operation.trailer = trailers_->take();
}

// Buffers of what was given up come back all the same, as the blocks of a piece that was not packed
// do: what MPI may still read of them goes to a life that is over.
void MpiMover::DataThread::give_back(Operation& operation, bool given_up) {
  if (operation.trailer && operation.trailer != operation.staged.trailer(operation.piece.bytes)) {
    trailers_->give_back(operation.trailer);
  }
  if (!operation.staged.bytes) return;
  Staging& staging = operation.kind == Operation::Kind::send ? packed_ : landed_;
  staging.give_back(std::move(operation.staged), given_up);
}

void MpiMover::DataThread::off_the_wire(const Operation& operation) {
  Inflow& inflow = inflow_[operation.peer.rank];
  switch (operation.kind) {
    case Operation::Kind::send: --sends_to_[operation.peer.rank]; return;
    case Operation::Kind::stray: --inflow.strays; return;
    case Operation::Kind::receive: --inflow.pieces; inflow.bytes -= operation.piece.bytes;
  }
}

void MpiMover::DataThread::remove(size_t index, bool given_up) {
  Operation& gone = operations_[index];
  off_the_wire(gone);
  give_back(gone, given_up);
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
  look_at_ = now + kLookUs;
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
    finish(operation, {false, "the sender's process ended in the middle of it", 0, 0});
    MPI_Request_free(&requests_[i]);
    remove(i, true);
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
  const bool waits = !requests_.empty() || !expected_.empty();
  if (waits && now - active_at_ < kSpinUs) {
    // Parts of a message arrive while nothing ends: whoever leaves the processor now gets it back
    // after somebody else's whole turn.
    pause_core();
    if (now - active_at_ > kHotUs) sched_yield();
    return;
  }
  const Micros nap = waits ? nap_us_ : kIdleUs;
  nap_us_ = std::min(nap_us_ * 2, kNapMaxUs);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::microseconds(nap),
                    [this] { return stopping_ || !jobs_.empty(); });
}

void MpiMover::DataThread::abandon_all() {
  for (size_t i = 0; i < operations_.size(); ++i) {
    MPI_Request_free(&requests_[i]);
    // MPI may still read or write there.
    (void)operations_[i].scratch.release();
    (void)operations_[i].staged.bytes.release();
  }
  if (!operations_.empty()) (void)trailers_.release();
}

}  // namespace baton
