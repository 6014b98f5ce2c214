#include "transport/mpi/data_thread.h"

#include <sched.h>
#include <sys/prctl.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "runtime/base/check.h"
#include "transport/mpi/piece_buffer.h"

namespace baton {
namespace {

constexpr size_t kOpenPiecesMax = 16384;  // in each direction
constexpr size_t kJobsMax = 4096;
constexpr Micros kHotUs = 200;    // after something happened: looks at once again
constexpr Micros kSpinUs = 2000;  // then lets others run between two looks, and then naps
constexpr Micros kNapMinUs = 20;
constexpr Micros kNapMaxUs = 500;    // while messages are under way
constexpr Micros kIdleUs = 10'000;   // while none are
constexpr Micros kLookUs = 10'000;   // between two looks for strays
constexpr Micros kOverUs = 200'000;  // for what a dead sender left in shared memory
constexpr size_t kStraysMax = 4;     // taken in at a time, each with a buffer of its own

// To one peer at a time: MPI takes turns among all that it has, and what is fresh in the cache from
// being packed or digested should leave while it is. What waits here can still be withdrawn.
constexpr uint32_t kSendsPerPeer = 4;

// Reading many short runs of the source's blocks costs MPI more than packing them first.
constexpr uint64_t kStraightBytesMin = 8 << 10;

bool packs(const Route& route) {
  if (route.source_runs.empty()) return true;
  return route.source_runs.size() > 1 &&
         route.block_bytes / route.source_runs.size() < kStraightBytesMin;
}

uint64_t staged_bytes(const RoutedPlan& plan) {
  const bool any = std::any_of(plan.routes.begin(), plan.routes.end(), packs);
  return any ? plan.piece_bytes_largest() : 0;
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
      staging_.reserve(staged_bytes(*job.transfer->plan));  // nothing to do if it was prepared
      for (uint32_t i = 0; i < job.transfer->pieces.size(); ++i) {
        waiting_.push_back({job.transfer, i});
      }
      return;
    case MpiJob::Kind::expect:
      for (const KvPiece& piece : job.transfer->pieces) post_receive(*job.transfer, piece);
      return;
    case MpiJob::Kind::cancel: return cancel(job.cancelled);
    case MpiJob::Kind::peer_down: return end_peer(job.rank, job.incarnation);
    case MpiJob::Kind::prepare: return staging_.reserve(staged_bytes(*job.plan));
    case MpiJob::Kind::look: look_at_ = 0; return;
  }
}

void MpiMover::DataThread::post_receive(const KvTransfer& transfer, const KvPiece& piece) {
  Operation operation;
  operation.kind = Operation::Kind::receive;
  operation.transfer = transfer.transfer;
  operation.peer = transfer.peer;
  operation.piece = piece;
  operation.digests = transfer.plan->terms.digests;
  operation.trailer = trailers_->take();
  operation.stretches = target_stretches(store_, transfer, piece);
  const Stretches stretches = operation.stretches;
  start(std::move(operation), stretches);
}

// A piece that is packed needs a buffer.
bool MpiMover::DataThread::can_go(const Waiting& waiting) const {
  const KvTransfer& transfer = *waiting.transfer;
  const auto under_way = sends_to_.find(transfer.peer.rank);
  if (under_way != sends_to_.end() && under_way->second >= kSendsPerPeer) return false;
  return !packs(transfer.plan->routes[waiting.piece().part.route]) ||
         staging_.available(transfer.peer.rank);
}

// Packs, digests and posts the first piece that can go. False if none can.
bool MpiMover::DataThread::send_next() {
  const auto next = std::find_if(waiting_.begin(), waiting_.end(),
                                 [this](const Waiting& waiting) { return can_go(waiting); });
  if (next == waiting_.end()) return false;
  const Waiting taken = *next;
  waiting_.erase(next);
  post_send(taken);
  return true;
}

void MpiMover::DataThread::post_send(const Waiting& waiting) {
  const KvTransfer& transfer = *waiting.transfer;
  Operation operation;
  operation.kind = Operation::Kind::send;
  operation.transfer = transfer.transfer;
  operation.peer = transfer.peer;
  operation.piece = waiting.piece();
  Stretches stretches;
  if (packs(transfer.plan->routes[operation.piece.part.route])) {
    operation.staged = staging_.take(transfer.peer.rank);
    stretches = {operation.staged.span(operation.piece.bytes)};
    pack_from(store_, transfer, operation.piece, stretches[0]);
  } else {
    stretches = source_stretches(store_, transfer, operation.piece);
  }
  operation.trailer = trailers_->take();
  if (transfer.plan->terms.digests) *operation.trailer = digest_of(stretches);
  start(std::move(operation), stretches);
}

void MpiMover::DataThread::start(Operation operation, const Stretches& stretches) {
  const PieceBuffer buffer(stretches, *operation.trailer);
  const int peer = static_cast<int>(operation.peer.rank);
  const int tag = static_cast<int>(operation.piece.tag);
  MPI_Request request = MPI_REQUEST_NULL;
  const int code =
      operation.kind == Operation::Kind::send
          ? MPI_Isend(MPI_BOTTOM, 1, buffer.type(), peer, tag, communicator_, &request)
          : MPI_Irecv(MPI_BOTTOM, 1, buffer.type(), peer, tag, communicator_, &request);
  if (code != MPI_SUCCESS) {
    finish(operation, {false, mpi_error_text(code), 0, 0});
    return give_back(operation, false);
  }
  if (operation.kind == Operation::Kind::send) ++sends_to_[operation.peer.rank];
  requests_.push_back(request);
  operations_.push_back(std::move(operation));
}

size_t MpiMover::DataThread::drop_waiting(const std::function<bool(const KvTransfer&)>& which,
                                          const std::string& reason) {
  std::deque<Waiting> kept;
  const size_t before = waiting_.size();
  for (const Waiting& waiting : waiting_) {
    if (which(*waiting.transfer)) {
      end_unposted(KvDirection::send, waiting.transfer->transfer, waiting.piece().piece, reason);
    } else {
      kept.push_back(waiting);
    }
  }
  waiting_.swap(kept);
  return before - waiting_.size();
}

// A send that has not begun and a receive that nothing has arrived for are withdrawn; what MPI has
// begun goes on to its end.
void MpiMover::DataThread::cancel(TransferId transfer) {
  drop_waiting([&](const KvTransfer& waiting) { return waiting.transfer == transfer; },
               "cancelled");
  for (size_t i = 0; i < operations_.size(); ++i) {
    const Operation& operation = operations_[i];
    if (operation.kind == Operation::Kind::receive && operation.transfer == transfer) withdraw(i);
  }
  count_stuck();
}

void MpiMover::DataThread::end_peer(uint32_t rank, uint32_t incarnation) {
  sends_abandoned_ += drop_waiting(
      [&](const KvTransfer& waiting) {
        return waiting.peer.rank == rank &&
               (incarnation == kAnyIncarnation || waiting.peer.incarnation <= incarnation);
      },
      "the peer is gone");
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
  for (int i = 0; i < count; ++i) {
    remove(static_cast<size_t>(done_[static_cast<size_t>(i)]), false);
  }
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
      if (code != MPI_SUCCESS) return finish(operation, {false, mpi_error_text(code), 0, 0});
      bytes_sent_ += operation.piece.bytes;
      return finish(operation, {true, {}, 0, 0});
    case Operation::Kind::receive: break;
  }
  if (cancelled != 0) return finish(operation, {false, "cancelled", 0, 0});
  if (code != MPI_SUCCESS) return finish(operation, {false, mpi_error_text(code), 0, 0});
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  const uint64_t expected = operation.piece.bytes + sizeof(uint64_t);
  if (static_cast<uint64_t>(bytes) != expected) {
    return finish(operation, {false,
                              std::to_string(bytes) + " bytes arrived, " +
                                  std::to_string(expected) + " were expected",
                              0, 0});
  }
  bytes_received_ += operation.piece.bytes;
  const uint64_t digest = operation.digests ? digest_of(operation.stretches) : 0;
  finish(operation, {true, {}, digest, *operation.trailer});
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

// Buffers of what was given up come back all the same, as the blocks of a piece that was not packed
// do: what MPI may still read of them goes to a life that is over.
void MpiMover::DataThread::give_back(Operation& operation, bool given_up) {
  if (operation.trailer) trailers_->give_back(operation.trailer);
  if (operation.staged.bytes) staging_.give_back(std::move(operation.staged), given_up);
}

void MpiMover::DataThread::remove(size_t index, bool given_up) {
  Operation& gone = operations_[index];
  if (gone.kind == Operation::Kind::send) --sends_to_[gone.peer.rank];
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
  if (!requests_.empty() && now - active_at_ < kSpinUs) {
    // Parts of a message arrive while nothing ends: whoever leaves the processor now gets it back
    // after somebody else's whole turn.
    if (now - active_at_ > kHotUs) sched_yield();
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
    // MPI may still read or write there.
    (void)operations_[i].scratch.release();
    (void)operations_[i].staged.bytes.release();
  }
  if (!operations_.empty()) (void)trailers_.release();
}

}  // namespace baton
