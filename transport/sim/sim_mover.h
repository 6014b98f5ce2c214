#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/sim/sim_host.h"
#include "transport/kv/block_store.h"
#include "transport/kv/transfer_table.h"
#include "transport/sim/sim_fabric.h"

namespace baton {

// The data plane of one simulated process, on virtual time. The process owns it; its actor calls
// it. Completions come as mail a little later, as from another thread.
class SimMover final : public KvMover {
 public:
  struct Options {
    size_t pieces_max = 256;  // open in each direction
  };

  SimMover(SimFabric& fabric, SimHost& host, BlockStore store, const Options& options);
  ~SimMover() override;

  // Memory is no matter here: a piece is packed into what its flow owns.
  void prepare(std::shared_ptr<const RoutedPlan>) override {}
  Result<void> expect(const KvTransfer& transfer, ActorId owner) override;
  Result<void> send(const KvTransfer& transfer, ActorId owner) override;
  void cancel(TransferId transfer) override;
  void drain(const KvTransfer& transfer) override;
  void peer_down(uint32_t rank, uint32_t incarnation) override;
  std::vector<BlockId> busy_blocks() const override { return table_.busy_blocks(); }
  uint32_t rank() const { return host_.rank(); }
  uint32_t block_tokens() const { return store_.placement.block_tokens; }

 private:
  friend class SimFabric;
  SimFabric::Half half_of(const std::shared_ptr<const KvTransfer>& transfer, const KvPiece& piece);
  void finish(KvDirection direction, TransferId transfer, uint32_t piece, const PieceEnd& end);

  SimFabric& fabric_;
  SimHost& host_;
  const BlockStore store_;
  const Options options_;
  TransferTable table_;
};

}  // namespace baton
