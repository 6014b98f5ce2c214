#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/hash.h"
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

// The thread behind a mover: takes jobs from a bounded queue, packs and digests pieces, hands them
// to MPI, tests what is under way and tells the owners of pieces that have ended. It works in
// slices, between two looks at what is under way, so that other pieces move meanwhile and a slice
// is read once from memory: one piece is packed or digested at a time, and one that has come is
// digested and stored. Messages are taken one or two at a time from each peer, into a few buffers;
// the others wait in MPI at the cost of their first kilobytes. It spins briefly after something
// happened and then naps, longer and longer up to a bound, so that expected pieces cost next to
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
  // Packed, digested or stored between two looks at what is under way.
  static constexpr size_t kTurnBytes = size_t{128} << 10;
  static constexpr size_t kPackedBuffers = 16;
  static constexpr uint32_t kPackedPerPeer = 3;  // one is packed while others move
  static constexpr size_t kLandedBuffers = 8;
  static constexpr uint32_t kLandedPerPeer = 4;  // as many are stored while others come

  // A message that MPI works on; requests_[i] belongs to operations_[i].
  struct Operation {
    enum class Kind : uint8_t { send, receive, stray } kind = Kind::send;
    TransferId transfer;
    ActorId peer;
    KvPiece piece;
    bool digests = true;
    uint64_t* trailer = nullptr;           // the digest that goes or comes behind the bytes
    std::unique_ptr<std::byte[]> scratch;  // of a stray
    Staging::Buffer staged;                // of a send or receive
    Stretches target;                      // of a receive
    bool withdrawn = false;                // nobody waits for it any more
    Micros over_at = 0;                    // the sender's process was seen to be over
  };

  // A piece whose turn has not come: to be packed, digested and sent, or to arrive.
  struct Waiting {
    std::shared_ptr<const KvTransfer> transfer;
    uint32_t index = 0;
    const KvPiece& piece() const { return transfer->pieces[index]; }
  };
  // The piece whose turn it is, as far as it has been packed and digested.
  struct Packing {
    Waiting waiting;
    Staging::Buffer staged;
    std::optional<PieceReader> reader;  // if it goes from a buffer
    Stretches source;                   // what MPI reads
    size_t packed = 0;
    Hasher64 hasher;
    uint64_t digest = 0;  // of the whole piece
  };
  // A piece that has come into a buffer, as far as it has been digested and stored.
  struct Arrived {
    Operation operation;
    PieceWriter writer;
    size_t stored = 0;
    Hasher64 hasher;
  };
  // What is under way from one peer.
  struct Inflow {
    uint32_t pieces = 0;
    uint64_t bytes = 0;
    uint32_t strays = 0;
  };
  using Place = std::pair<uint32_t, uint32_t>;  // rank of the sender, tag

  void run();
  bool take_jobs();
  void perform(const MpiJob& job);
  // The sending side.
  bool can_go(const Waiting& waiting) const;
  bool send_next();
  void begin_send(const Waiting& waiting);
  bool prepare_slice(Packing& packing);
  void post_send();
  // How many pieces were dropped.
  size_t drop_waiting(const std::function<bool(const KvTransfer&)>& which,
                      const std::string& reason);
  // The receiving side.
  void expect(const std::shared_ptr<const KvTransfer>& transfer);
  void drop_expected(const std::function<bool(const KvTransfer&)>& which,
                     const std::string& reason);
  bool take_in();
  bool take_in_from(uint32_t rank);
  bool may_begin(const KvPiece& piece, uint32_t rank) const;
  void receive(const Waiting& expected, const MPI_Status& seen);
  bool take_in_stray(const MPI_Status& seen);
  bool take(Operation operation, const MPI_Status& seen, void* memory, int count,
            MPI_Datatype type);
  void off_the_wire(const Operation& operation);
  void arrive(Operation operation);
  bool store_next();

  void prepare(const RoutedPlan& plan);
  void end_unposted(KvDirection direction, TransferId transfer, uint32_t piece,
                    const std::string& reason);
  void cancel(TransferId transfer);
  void end_peer(uint32_t rank, uint32_t incarnation);
  bool test();
  void complete(Operation& operation, int code, MPI_Status status);
  void finish(const Operation& operation, const PieceEnd& end);
  void remove(size_t index, bool given_up);
  void take_trailer(Operation& operation);
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
  std::optional<Packing> packing_;
  std::map<uint32_t, uint32_t> sends_to_;  // under way, by peer
  std::map<Place, Waiting> expected_;
  std::map<uint32_t, Inflow> inflow_;  // by peer
  std::deque<Arrived> arrived_;
  Staging packed_{kPackedBuffers, kPackedPerPeer};  // of sends
  Staging landed_{kLandedBuffers, kLandedPerPeer};  // of receives
  uint32_t first_peer_ = 0;                         // that is looked at: each has its turn
  std::unique_ptr<Trailers> trailers_ = std::make_unique<Trailers>();
  Micros active_at_ = 0;
  Micros nap_us_ = 0;
  Micros look_at_ = 0;  // for what will not end

  std::atomic<uint64_t> bytes_sent_{0};
  std::atomic<uint64_t> bytes_received_{0};
  std::atomic<uint64_t> strays_{0};
  std::atomic<uint64_t> sends_abandoned_{0};
  std::atomic<uint64_t> receives_abandoned_{0};
  std::atomic<uint64_t> receives_stuck_{0};
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace baton
