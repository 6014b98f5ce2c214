#include "transport/inproc/inproc_mover.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "transport/kv/piece_memory.h"
#include "transport/kv/pieces.h"
#include "transport/kv/transfer_table.h"

namespace baton {
namespace {

constexpr size_t kOpenPiecesMax = 16384;  // in each direction, per mover
constexpr size_t kDrainsMax = 4096;       // tags whose bytes are thrown away when they come
constexpr size_t kCopyThreads = 2;        // one for each side, as two processes would have

Micros steady_now() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

// What the exchange knows of one mover.
struct InprocMover::Side {
  BlockStore store;
  std::function<void(Mail)> deliver;
  TransferTable table{kOpenPiecesMax};

  void finish(KvDirection direction, TransferId transfer, uint32_t piece, const PieceEnd& end) {
    std::optional<Mail> mail = table.end(direction, transfer, piece, end, steady_now());
    if (mail) deliver(std::move(*mail));
  }
};

struct InprocExchange::State {
  using Side = InprocMover::Side;

  // One side of a piece, waiting for the other.
  struct Half {
    Side* side = nullptr;
    std::shared_ptr<const KvTransfer> transfer;  // shared by its pieces
    uint32_t index = 0;

    const KvPiece& piece() const { return transfer->pieces[index]; }
    void finish(KvDirection direction, const PieceEnd& end) const {
      side->finish(direction, transfer->transfer, piece().piece, end);
    }
  };
  struct Copy {
    Half source;
    Half target;  // without a side: the bytes are not wanted
    bool touches(const Side* side) const { return source.side == side || target.side == side; }
  };
  using Waiting = std::map<uint32_t, Half>;  // by tag

  State() {
    for (size_t i = 0; i < kCopyThreads; ++i) threads.emplace_back([this] { run(); });
  }

  void run();
  static uint64_t move_bytes(const Half& source, const Half& target,
                             std::vector<std::byte>& scratch);
  static void perform(const Copy& copy, std::vector<std::byte>& scratch);
  void post_sends(Side* side, const KvTransfer& transfer);
  void post_receives(Side* side, const KvTransfer& transfer);
  void drain(const KvTransfer& transfer);
  std::vector<Half> withdraw(Waiting& waiting, const std::function<bool(const Half&)>& which);
  void leave(Side* side);

  std::mutex mutex;  // guards all below
  std::condition_variable changed;
  Waiting sends;
  Waiting receives;
  std::set<uint32_t> drains;
  std::deque<Copy> ready;
  std::list<Copy> under_way;
  bool stopping = false;
  std::vector<std::thread> threads;  // last: they use all of the above
};

void InprocExchange::State::run() {
  std::vector<std::byte> scratch;  // of this thread: a slice of a piece
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return stopping || !ready.empty(); });
    if (stopping) return;
    const auto copy = under_way.insert(under_way.end(), std::move(ready.front()));
    ready.pop_front();
    lock.unlock();
    perform(*copy, scratch);
    lock.lock();
    under_way.erase(copy);
    changed.notify_all();
  }
}

// Between the two sides lies nothing but this thread's own cache: the bytes that it has read are
// digested once, there, for both of them.
uint64_t InprocExchange::State::move_bytes(const Half& source, const Half& target,
                                           std::vector<std::byte>& scratch) {
  const bool digests = target.transfer->plan->terms.digests;
  PieceReader reader(source.side->store, *source.transfer, source.piece());
  PieceWriter writer(target_stretches(target.side->store, *target.transfer, target.piece()));
  Hasher64 hasher;
  scratch.resize(std::max({scratch.size(), kSliceBytes, reader.slice_bytes_min()}));
  while (const size_t bytes = reader.read(scratch)) {
    const std::span<const std::byte> slice = std::span(scratch).first(bytes);
    if (digests) hasher.add(slice);
    writer.write(slice);
  }
  CHECK(writer.ended());
  return digests ? hasher.value() : 0;
}

void InprocExchange::State::perform(const Copy& copy, std::vector<std::byte>& scratch) {
  const Half& source = copy.source;
  const Half& target = copy.target;
  PieceEnd received{true, {}, 0, 0};
  if (target.side && source.piece().bytes != target.piece().bytes) {
    received = {false,
                "the sender's piece has " + std::to_string(source.piece().bytes) +
                    " bytes, this side's " + std::to_string(target.piece().bytes),
                0, 0};
  } else if (target.side) {
    const uint64_t digest = move_bytes(source, target, scratch);
    received.digest = digest;
    received.sent_digest = digest;
  }
  source.finish(KvDirection::send, {true, {}, 0, 0});
  if (target.side) target.finish(KvDirection::receive, received);
}

void InprocExchange::State::post_sends(Side* side, const KvTransfer& transfer) {
  const auto shared = std::make_shared<const KvTransfer>(transfer);
  const std::lock_guard lock(mutex);
  for (uint32_t i = 0; i < transfer.pieces.size(); ++i) {
    const KvPiece& piece = transfer.pieces[i];
    const Half half{side, shared, i};
    if (auto receive = receives.find(piece.tag); receive != receives.end()) {
      ready.push_back({half, std::move(receive->second)});
      receives.erase(receive);
    } else if (drains.erase(piece.tag) > 0) {
      ready.push_back({half, Half{}});
    } else {
      CHECK_MSG(sends.emplace(piece.tag, half).second, "a tag is used once");
    }
  }
  changed.notify_all();
}

void InprocExchange::State::post_receives(Side* side, const KvTransfer& transfer) {
  const auto shared = std::make_shared<const KvTransfer>(transfer);
  const std::lock_guard lock(mutex);
  for (uint32_t i = 0; i < transfer.pieces.size(); ++i) {
    const KvPiece& piece = transfer.pieces[i];
    const Half half{side, shared, i};
    if (auto send = sends.find(piece.tag); send != sends.end()) {
      ready.push_back({std::move(send->second), half});
      sends.erase(send);
    } else {
      CHECK_MSG(receives.emplace(piece.tag, half).second, "a tag is used once");
    }
  }
  changed.notify_all();
}

void InprocExchange::State::drain(const KvTransfer& transfer) {
  const std::lock_guard lock(mutex);
  for (const KvPiece& piece : transfer.pieces) {
    if (auto send = sends.find(piece.tag); send != sends.end()) {
      ready.push_back({std::move(send->second), Half{}});
      sends.erase(send);
    } else {
      drains.insert(piece.tag);
    }
  }
  while (drains.size() > kDrainsMax) drains.erase(drains.begin());  // tags rise: the oldest
  changed.notify_all();
}

std::vector<InprocExchange::State::Half> InprocExchange::State::withdraw(
    Waiting& waiting, const std::function<bool(const Half&)>& which) {
  const std::lock_guard lock(mutex);
  std::vector<Half> out;
  for (auto at = waiting.begin(); at != waiting.end();) {
    if (which(at->second)) {
      out.push_back(std::move(at->second));
      at = waiting.erase(at);
    } else {
      ++at;
    }
  }
  return out;
}

void InprocExchange::State::leave(Side* side) {
  auto mine = [side](const Half& half) { return half.side == side; };
  withdraw(sends, mine);
  withdraw(receives, mine);
  std::vector<Copy> cut;
  {
    std::unique_lock lock(mutex);
    std::deque<Copy> kept;
    for (Copy& copy : ready) {
      if (copy.touches(side)) {
        cut.push_back(std::move(copy));
      } else {
        kept.push_back(std::move(copy));
      }
    }
    ready.swap(kept);
    changed.wait(lock, [&] {
      return std::none_of(under_way.begin(), under_way.end(),
                          [&](const Copy& copy) { return copy.touches(side); });
    });
  }
  const PieceEnd gone{false, "the other side's mover was taken down", 0, 0};
  for (const Copy& copy : cut) {
    if (!mine(copy.source)) {
      copy.source.finish(KvDirection::send, gone);
    } else if (copy.target.side && !mine(copy.target)) {
      copy.target.finish(KvDirection::receive, gone);
    }
  }
}

InprocExchange::InprocExchange() : state_(std::make_unique<State>()) {}

InprocExchange::~InprocExchange() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->changed.notify_all();
  for (std::thread& thread : state_->threads) thread.join();
}

InprocMover::InprocMover(InprocExchange& exchange, BlockStore store,
                         std::function<void(Mail)> deliver)
    : exchange_(*exchange.state_), side_(std::make_unique<Side>()) {
  side_->store = std::move(store);
  side_->deliver = std::move(deliver);
}

InprocMover::~InprocMover() {
  exchange_.leave(side_.get());
}

Result<void> InprocMover::expect(const KvTransfer& transfer, ActorId owner) {
  Result<void> sound = check_transfer(transfer, KvDirection::receive, side_->store);
  if (!sound.ok()) return sound;
  Result<void> opened = side_->table.open(KvDirection::receive, transfer, owner, steady_now());
  if (opened.ok()) exchange_.post_receives(side_.get(), transfer);
  return opened;
}

Result<void> InprocMover::send(const KvTransfer& transfer, ActorId owner) {
  Result<void> sound = check_transfer(transfer, KvDirection::send, side_->store);
  if (!sound.ok()) return sound;
  Result<void> opened = side_->table.open(KvDirection::send, transfer, owner, steady_now());
  if (opened.ok()) exchange_.post_sends(side_.get(), transfer);
  return opened;
}

void InprocMover::cancel(TransferId transfer) {
  withdraw([&](const TransferId& id, const ActorId&) { return id == transfer; }, "cancelled");
}

void InprocMover::drain(const KvTransfer& transfer) {
  exchange_.drain(transfer);
}

void InprocMover::peer_down(uint32_t rank, uint32_t incarnation) {
  withdraw(
      [&](const TransferId&, const ActorId& peer) {
        return peer.rank == rank &&
               (incarnation == kAnyIncarnation || peer.incarnation <= incarnation);
      },
      "the peer is gone");
}

// Ends this side's pieces that wait for their other half; a copy under way ends by itself.
void InprocMover::withdraw(const std::function<bool(const TransferId&, const ActorId&)>& which,
                           const std::string& reason) {
  auto mine = [&](const InprocExchange::State::Half& half) {
    return half.side == side_.get() && which(half.transfer->transfer, half.transfer->peer);
  };
  const PieceEnd end{false, reason, 0, 0};
  for (const auto& half : exchange_.withdraw(exchange_.sends, mine)) {
    half.finish(KvDirection::send, end);
  }
  for (const auto& half : exchange_.withdraw(exchange_.receives, mine)) {
    half.finish(KvDirection::receive, end);
  }
}

std::vector<BlockId> InprocMover::busy_blocks() const {
  return side_->table.busy_blocks();
}

}  // namespace baton
