#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "tests/unit/actors/worker/scripted_engine.h"

namespace baton::test {

// The data plane between two ranks, with the manners of MPI: a send that was begun ends only when
// its tag is received or drained, or its peer is gone; a receive that nothing has reached can be
// withdrawn. Bytes move when the test says so. Used by the test's thread alone.
class KvNetwork {
 public:
  struct Part {
    KvTransfer transfer;
    KvPiece piece;
    ActorId owner;
  };

  std::deque<Part> sends;
  std::map<uint32_t, Part> receives;  // by tag
  std::set<uint32_t> drains;          // tags
  std::set<uint32_t> tags_used;
};

class FakeMover final : public KvMover {
 public:
  FakeMover(KvNetwork& network, ScriptedEngine& engine) : network_(network), engine_(engine) {}

  void prepare(std::shared_ptr<const RoutedPlan> plan) override { prepared.push_back(plan); }
  Result<void> expect(const KvTransfer& transfer, ActorId owner) override {
    if (refuse_next > 0) {
      --refuse_next;
      return Error{ErrorCode::busy, "too many receives"};
    }
    for (const KvPiece& piece : transfer.pieces) {
      REQUIRE(network_.tags_used.insert(piece.tag).second);
      network_.receives[piece.tag] = {transfer, piece, owner};
    }
    return {};
  }
  Result<void> send(const KvTransfer& transfer, ActorId owner) override {
    if (refuse_next > 0) {
      --refuse_next;
      return Error{refuse_code, "no"};
    }
    for (const KvPiece& piece : transfer.pieces) network_.sends.push_back({transfer, piece, owner});
    return {};
  }
  void cancel(TransferId transfer) override {
    cancelled.push_back(transfer);
    for (auto part = network_.receives.begin(); part != network_.receives.end();) {
      const bool meant = part->second.transfer.transfer == transfer && receiver;
      if (!meant) {
        ++part;
        continue;
      }
      received.push_back({transfer, part->second.piece.piece, false, "withdrawn", 0});
      part = network_.receives.erase(part);
    }
  }
  void drain(const KvTransfer& transfer) override {
    for (const KvPiece& piece : transfer.pieces) network_.drains.insert(piece.tag);
  }
  void peer_down(uint32_t rank, uint32_t incarnation) override {
    downs.push_back(rank);
    for (auto part = network_.sends.begin(); part != network_.sends.end();) {
      const ActorId& peer = part->transfer.peer;
      if (peer.rank != rank || peer.incarnation > incarnation || receiver) {
        ++part;
        continue;
      }
      sent.push_back({part->transfer.transfer, part->piece.piece, false, "peer down", 0});
      part = network_.sends.erase(part);
    }
  }
  std::vector<BlockId> busy_blocks() const override {
    std::vector<BlockId> busy = held;
    const auto take = [&](const KvNetwork::Part& part) {
      busy.insert(busy.end(), part.piece.blocks.begin(), part.piece.blocks.end());
    };
    if (receiver) {
      for (const auto& [tag, part] : network_.receives) take(part);
    } else {
      for (const auto& part : network_.sends) take(part);
    }
    return busy;
  }

  uint64_t digest_of(const std::vector<BlockId>& blocks) {
    uint64_t digest = 0;
    for (const BlockId block : blocks) digest = hash64(engine_.block_bytes(block), digest);
    return digest;
  }

  bool receiver = false;  // this is the decode side's
  int refuse_next = 0;    // calls that are refused
  ErrorCode refuse_code = ErrorCode::busy;
  std::vector<BlockId> held;  // busy for the test's own reasons
  std::vector<TransferId> cancelled;
  std::vector<uint32_t> downs;
  std::deque<KvReceived> received;  // completions that were not delivered yet
  std::deque<KvSent> sent;
  std::vector<std::shared_ptr<const RoutedPlan>> prepared;

 private:
  KvNetwork& network_;
  ScriptedEngine& engine_;
};

// Moves the bytes of the send at `index`, if it is received or drained. `corrupt` flips a bit of
// what arrives. False: nobody takes it yet.
inline bool move_piece(KvNetwork& network, size_t index, FakeMover& source, ScriptedEngine& from,
                       FakeMover& target, ScriptedEngine& to, bool corrupt = false) {
  const KvNetwork::Part part = network.sends[index];
  const auto receive = network.receives.find(part.piece.tag);
  const bool drained = network.drains.erase(part.piece.tag) > 0;
  if (!drained && receive == network.receives.end()) return false;
  REQUIRE(!(drained && receive != network.receives.end()));
  if (!drained) {
    const KvNetwork::Part target_part = receive->second;
    REQUIRE(target_part.piece.blocks.size() == part.piece.blocks.size());
    for (size_t i = 0; i < part.piece.blocks.size(); ++i) {
      const auto bytes = from.block_bytes(part.piece.blocks[i]);
      std::memcpy(to.block_bytes(target_part.piece.blocks[i]).data(), bytes.data(), bytes.size());
    }
    const uint64_t sent_digest = source.digest_of(part.piece.blocks);
    if (corrupt) to.block_bytes(target_part.piece.blocks[0])[3] ^= std::byte{1};
    target.received.push_back({target_part.transfer.transfer, target_part.piece.piece, true, "",
                               target.digest_of(target_part.piece.blocks), sent_digest});
    network.receives.erase(receive);
  }
  source.sent.push_back({part.transfer.transfer, part.piece.piece, true, "", 1});
  network.sends.erase(network.sends.begin() + static_cast<std::ptrdiff_t>(index));
  return true;
}

}  // namespace baton::test
