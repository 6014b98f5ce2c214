#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "transport/kv/piece_memory.h"
#include "transport/kv/pieces.h"
#include "transport/kv/transfer_table.h"
#include "transport/mpi/mpi_access.h"
#include "transport/mpi/mpi_mover.h"
#include "transport/mpi/staging.h"
#include "transport/mpi/trailers.h"

namespace baton {

Micros steady_micros();

// What the mover asks of its data thread.
struct MpiJob {
  enum class Kind : uint8_t { send, expect, cancel, peer_down, prepare, look } kind = Kind::look;
  // Of send and expect; shared by the pieces that wait for their turn.
  std::shared_ptr<const KvTransfer> transfer;
  TransferId cancelled;                    // of cancel
  std::shared_ptr<const RoutedPlan> plan;  // of prepare
  uint32_t rank = 0;                       // of peer_down
  uint32_t incarnation = 0;                // of peer_down
};

// The thread behind a mover: takes jobs from a bounded queue, packs and digests pieces, posts them
// to MPI, tests what is under way and tells the owners of pieces that have ended. One piece is
// packed and digested at a time, between two looks at what is under way, so that the piece before
// it moves meanwhile. It spins briefly after something
// happened and then naps, longer and longer up to a bound, so that posted receives cost next to
// nothing.
class MpiMover::DataThread {
 public:
  DataThread(MpiWorld& world, const BlockStore& store, std::function<void(Mail)> deliver);
  ~DataThread();

  TransferTable table;  // thread-safe
  // thread-safe; false when the queue is full (only for send and expect).
  bool push(MpiJob job);
  // Takes back jobs of a transfer that were not begun, and ends their pieces. thread-safe
  void take_back(TransferId transfer);
  MpiMoverCounters counters() const;  // thread-safe

 private:
  // A message that MPI works on; requests_[i] belongs to operations_[i].
  struct Operation {
    enum class Kind : uint8_t { send, receive, stray } kind = Kind::send;
    TransferId transfer;
    ActorId peer;
    KvPiece piece;
    bool digests = true;
    uint64_t* trailer = nullptr;           // the digest that goes or comes behind the bytes
    std::unique_ptr<std::byte[]> scratch;  // of a stray
    Stretches stretches;                   // of a receive
    Staging::Buffer staged;                // of a send that is packed
    bool withdrawn = false;                // MPI was asked to cancel it
    Micros over_at = 0;                    // the sender's process was seen to be over
  };

  // A piece that waits to be packed, digested and sent.
  struct Waiting {
    std::shared_ptr<const KvTransfer> transfer;
    uint32_t index = 0;
    const KvPiece& piece() const { return transfer->pieces[index]; }
  };

  void run();
  bool take_jobs();
  void perform(const MpiJob& job);
  void post_receive(const KvTransfer& transfer, const KvPiece& piece);
  bool can_go(const Waiting& waiting) const;
  bool send_next();
  void post_send(const Waiting& waiting);
  // How many pieces were dropped.
  size_t drop_waiting(const std::function<bool(const KvTransfer&)>& which,
                      const std::string& reason);
  void start(Operation operation, const Stretches& stretches);
  void end_unposted(KvDirection direction, TransferId transfer, uint32_t piece,
                    const std::string& reason);
  void cancel(TransferId transfer);
  void end_peer(uint32_t rank, uint32_t incarnation);
  void withdraw(size_t index);
  bool test();
  void complete(const Operation& operation, int code, MPI_Status status);
  bool take_in_strays();
  bool take_in_stray(const MPI_Status& seen);
  void finish(const Operation& operation, const PieceEnd& end);
  void remove(size_t index, bool given_up);
  void give_back(Operation& operation, bool given_up);
  void count_stuck();
  bool give_up_stuck();
  void rest(bool active);
  void abandon_all();

  const BlockStore store_;
  const std::function<void(Mail)> deliver_;
  const MpiWorld& world_;
  const MPI_Comm communicator_;

  std::mutex mutex_;  // guards jobs_ and stopping_
  std::condition_variable changed_;
  std::deque<MpiJob> jobs_;
  bool stopping_ = false;

  // Of the data thread alone.
  std::vector<MPI_Request> requests_;
  std::vector<Operation> operations_;
  std::vector<int> done_;
  std::vector<MPI_Status> statuses_;
  std::deque<Waiting> waiting_;
  std::map<uint32_t, uint32_t> sends_to_;  // under way, by peer
  Staging staging_;
  std::unique_ptr<Trailers> trailers_ = std::make_unique<Trailers>();
  Micros active_at_ = 0;
  Micros nap_us_ = 0;
  Micros look_at_ = 0;  // for strays
  size_t strays_under_way_ = 0;

  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> bytes_received_{0};
  std::atomic<uint64_t> strays_{0};
  std::atomic<uint64_t> sends_abandoned_{0};
  std::atomic<uint64_t> receives_abandoned_{0};
  std::atomic<uint64_t> receives_stuck_{0};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton
