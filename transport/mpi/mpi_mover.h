#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "transport/kv/block_store.h"
#include "transport/mpi/mpi_world.h"

namespace baton {

struct MpiMoverCounters {
  uint64_t bytes_sent = 0;
  uint64_t bytes_received = 0;
  uint64_t strays = 0;              // messages without a receive: taken in and thrown away
  uint64_t sends_abandoned = 0;     // to peers that are gone
  uint64_t receives_abandoned = 0;  // begun, then their sender's process was over
  uint64_t receives_stuck = 0;  // now: cannot be withdrawn and have not ended; hold their blocks
};

// Moves blocks between ranks by MPI: a piece is one message, its bytes and the digest behind them.
// The sender packs it into a buffer, the receiver stores it from one; pieces that find no buffer go
// straight from or into their blocks by a datatype, unless they must be converted. Owns the data
// thread, the only one that calls MPI from its construction to its destruction; the actor of the
// rank calls the mover on the loop's thread. `deliver` is called from either. No receive is posted:
// a message waits in MPI until it is matched with the piece that expects it. One that no piece
// expects is stray (its piece was cancelled, or its sender slept through its own end) and is thrown
// away: a piece must be expected before the sender can know of it. Tags are never used twice, so a
// stray message never reaches blocks that have a new owner.
class MpiMover final : public KvMover {
 public:
  MpiMover(MpiWorld& world, BlockStore store, std::function<void(Mail)> deliver);
  // Abandons what is under way; after it the process may only leave.
  ~MpiMover() override;

  void prepare(std::shared_ptr<const RoutedPlan> plan) override;
  Result<void> expect(const KvTransfer& transfer, ActorId owner) override;
  Result<void> send(const KvTransfer& transfer, ActorId owner) override;
  // Sends that MPI has taken end when their receiver takes the message, or by peer_down().
  void cancel(TransferId transfer) override;
  void drain(const KvTransfer& transfer) override;
  void peer_down(uint32_t rank, uint32_t incarnation) override;
  std::vector<BlockId> busy_blocks() const override;

  MpiMoverCounters counters() const;  // thread-safe

 private:
  class DataThread;
  Result<void> start(bool sends, const KvTransfer& transfer, ActorId owner);

  const BlockStore store_;
  const uint32_t ranks_;
  const uint32_t tag_max_;
  std::unique_ptr<DataThread> data_;
};

}  // namespace baton
