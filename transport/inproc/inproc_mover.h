#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "transport/kv/block_store.h"

namespace baton {

// Where the movers of one process meet: matches sends with receives by tag, and owns the
// threads that copy. Make it before the movers and destroy it after them.
class InprocExchange {
 public:
  InprocExchange();
  ~InprocExchange();
  InprocExchange(const InprocExchange&) = delete;
  InprocExchange& operator=(const InprocExchange&) = delete;

 private:
  friend class InprocMover;
  struct State;
  std::unique_ptr<State> state_;
};

// Moves blocks between the pools of one process by memcpy, packing where the plan asks for it. One
// per engine; its actor calls it, on the loop's thread. `deliver` is called from the copying
// threads and from the caller's.
class InprocMover final : public KvMover {
 public:
  InprocMover(InprocExchange& exchange, BlockStore store, std::function<void(Mail)> deliver);
  // Withdraws what waits, and waits for a copy that is under way; nothing is delivered any more.
  ~InprocMover() override;

  // Its threads keep what a packed piece needed.
  void prepare(std::shared_ptr<const RoutedPlan>) override {}
  Result<void> expect(const KvTransfer& transfer, ActorId owner) override;
  Result<void> send(const KvTransfer& transfer, ActorId owner) override;
  void cancel(TransferId transfer) override;
  void drain(const KvTransfer& transfer) override;
  void peer_down(uint32_t rank, uint32_t incarnation) override;
  std::vector<BlockId> busy_blocks() const override;

 private:
  friend class InprocExchange;
  struct Side;
  void withdraw(const std::function<bool(const TransferId&, const ActorId&)>& which,
                const std::string& reason);

  InprocExchange::State& exchange_;
  std::unique_ptr<Side> side_;
};

}  // namespace baton
