#include "transport/sim/sim_fabric.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/check.h"
#include "transport/kv/piece_memory.h"
#include "transport/sim/sim_mover.h"

namespace baton {
namespace {

constexpr Micros kPausedUs = 500;            // a stalled end is looked at again
constexpr Micros kForsakenUs = 5 * kSecond;  // a piece whose other process is gone, untold
constexpr size_t kDrainsMax = 4096;
constexpr Micros kTearDownUsMin = 10 * kMillisecond;
constexpr Micros kTearDownUsMax = kSecond;

bool names(const ActorId& peer, uint32_t rank, uint32_t incarnation) {
  return peer.rank == rank && (incarnation == kAnyIncarnation || peer.incarnation <= incarnation);
}

}  // namespace

// ---------------------------------------------------------------- matching

void SimFabric::post_send(const Key& key, Half half) {
  half.withdrawable = !world_.random().chance(faults_.unwithdrawn);
  if (drains_.erase(key) > 0) {
    Half nowhere;
    nowhere.rank = key.target;
    return start(std::move(half), nowhere, false);
  }
  const auto receive = receives_.find(key);
  if (receive == receives_.end()) {
    CHECK_MSG(sends_.emplace(key, std::move(half)).second, "a tag is used once");
    return;
  }
  Half target = std::move(receive->second);
  receives_.erase(receive);
  start(std::move(half), std::move(target), true);
}

void SimFabric::post_receive(const Key& key, Half half) {
  const auto send = sends_.find(key);
  if (send == sends_.end()) {
    CHECK_MSG(receives_.emplace(key, std::move(half)).second, "a tag is used once");
    return;
  }
  Half source = std::move(send->second);
  sends_.erase(send);
  start(std::move(source), std::move(half), true);
}

void SimFabric::drain(const Key& key, uint32_t rank) {
  const auto send = sends_.find(key);
  if (send == sends_.end()) {
    drains_.insert(key);
    if (drains_.size() > kDrainsMax) drains_.erase(drains_.begin());
    return;
  }
  Half source = std::move(send->second);
  sends_.erase(send);
  Half nowhere;
  nowhere.rank = rank;
  start(std::move(source), nowhere, false);
}

// ---------------------------------------------------------------- moving

void SimFabric::start(Half source, Half target, bool wanted) {
  SimRandom& random = world_.random();
  Micros piece_us = random.between(faults_.piece_us_min, faults_.piece_us_max);
  if (random.chance(faults_.slow)) piece_us += random.between(0, faults_.slow_us_max);
  const uint64_t id = next_flow_++;
  Flow& flow = flows_[id];
  flow.source = std::move(source);
  flow.target = std::move(target);
  flow.wanted = wanted;
  flow.chunks = std::max(flow.source.piece.part.blocks, 1u) * kChunksPerBlock;
  flow.chunk_us = std::max<Micros>(piece_us / flow.chunks, 1);
  if (random.chance(faults_.fail)) flow.fail_at = static_cast<uint32_t>(random.below(flow.chunks));
  if (random.chance(faults_.corrupt)) {
    flow.corrupt_at = static_cast<uint32_t>(random.below(flow.chunks));
  }
  lay_out(flow);
  if (sabotage_ == FabricSabotage::end_receives_early && wanted) {
    const PieceEnd lie{true, {}, flow.sent_digest, flow.sent_digest};
    flow.target.mover->finish(KvDirection::receive, flow.target.transfer, flow.target.piece.piece,
                              lie);
  }
  world_.at(flow.chunk_us, [this, id] { advance(id); });
}

// What the sender's data thread does when a piece's turn has come: pack it, if it must be, and
// digest it.
void SimFabric::lay_out(Flow& flow) {
  const KvTransfer& whole = *flow.source.whole;
  const KvPiece& piece = flow.source.piece;
  const bool spoils = sabotage_ >= FabricSabotage::swap_heads;
  if (spoils || whole.plan->routes[piece.part.route].source_runs.empty()) {
    flow.packed.resize(piece.bytes);
    pack_from(flow.source.mover->store_, whole, piece, flow.packed);
    if (spoils) spoil(flow);
    flow.from = {std::span(flow.packed)};
  } else {
    flow.from = source_stretches(flow.source.mover->store_, whole, piece);
  }
  flow.sent_digest = digest_of(flow.from);
  if (flow.wanted) {
    flow.to = target_stretches(flow.target.mover->store_, *flow.target.whole, flow.target.piece);
  }
}

// A sender that packs wrongly.
void SimFabric::spoil(Flow& flow) {
  const KvTransfer& whole = *flow.source.whole;
  const TransferPiece& part = flow.source.piece.part;
  const Route& route = whole.plan->routes[part.route];
  const Placement& form = whole.plan->plan.target;
  const uint64_t head_bytes =
      uint64_t{form.block_tokens} * form.shape.head_dim * dtype_bytes(form.dtype);
  const std::span<std::byte> wire(flow.packed);
  const auto swap_parts = [&](uint64_t a, uint64_t b, uint64_t bytes) {
    std::swap_ranges(wire.begin() + static_cast<std::ptrdiff_t>(a),
                     wire.begin() + static_cast<std::ptrdiff_t>(a + bytes),
                     wire.begin() + static_cast<std::ptrdiff_t>(b));
  };
  switch (sabotage_) {
    case FabricSabotage::swap_heads:
      if (route.block_bytes >= 2 * head_bytes) swap_parts(0, head_bytes, head_bytes);
      return;
    case FabricSabotage::shift_layers:
      for (uint64_t at = 0; at + 2 * head_bytes <= route.block_bytes; at += head_bytes) {
        std::memcpy(wire.data() + at, wire.data() + at + head_bytes, head_bytes);
      }
      return;
    case FabricSabotage::reverse_blocks:
      for (uint32_t i = 0; i < part.blocks / 2; ++i) {
        swap_parts(i * route.block_bytes, (part.blocks - 1 - i) * route.block_bytes,
                   route.block_bytes);
      }
      return;
    case FabricSabotage::lose_suffix:
      if ((part.first_block + part.blocks) * form.block_tokens >= whole.tokens) {
        std::memset(wire.data() + wire.size() - route.block_bytes, 0, route.block_bytes);
      }
      return;
    case FabricSabotage::wrong_element:
      for (size_t at = 0; at + 2 <= wire.size(); at += 2) std::swap(wire[at], wire[at + 1]);
      return;
    case FabricSabotage::none:
    case FabricSabotage::end_receives_early:
    case FabricSabotage::skip_quarantine:
    case FabricSabotage::corrupt_after_digest: return;
  }
}

void SimFabric::advance(uint64_t id) {
  const auto found = flows_.find(id);
  if (found == flows_.end()) return;
  Flow& flow = found->second;
  const bool target_gone = flow.wanted && !flow.target.mover;
  if (!flow.source.mover || target_gone || !world_.is_up(flow.target.rank)) {
    return;  // peer_down(), or leave(), sees to the end that is left
  }
  if (world_.is_stalled(flow.source.rank) || world_.is_stalled(flow.target.rank)) {
    return world_.at(kPausedUs, [this, id] { advance(id); });
  }
  if (flow.chunk == flow.fail_at) {
    end_both(flow, "the transfer broke off");
    flows_.erase(found);
    return;
  }
  if (flow.wanted) copy_chunk(flow);
  ++flow.chunk;
  if (flow.chunk < flow.chunks) {
    return world_.at(flow.chunk_us, [this, id] { advance(id); });
  }
  complete(flow);
  flows_.erase(id);
}

void SimFabric::copy_chunk(Flow& flow) {
  const uint64_t bytes = flow.source.piece.bytes;
  if (bytes != flow.target.piece.bytes) return;
  const uint64_t begin = bytes * flow.chunk / flow.chunks;
  const uint64_t end = bytes * (flow.chunk + 1) / flow.chunks;
  copy_between(flow.from, flow.to, begin, end - begin);
  if (flow.chunk != flow.corrupt_at || begin == end) return;
  const uint64_t bit = world_.random().below((end - begin) * 8);
  byte_at(flow.to, begin + bit / 8) ^= static_cast<std::byte>(1u << bit % 8);
}

void SimFabric::complete(Flow& flow) {
  const KvPiece& sent = flow.source.piece;
  flow.source.mover->finish(KvDirection::send, flow.source.transfer, sent.piece, {true, {}, 0, 0});
  if (!flow.wanted) return;
  const KvPiece& got = flow.target.piece;
  SimMover& mover = *flow.target.mover;
  PieceEnd end{true, {}, 0, 0};
  if (sent.bytes != got.bytes) {
    end = {false, "the sender's piece has another size", 0, 0};
  } else {
    end.digest = digest_of(flow.to);
    end.sent_digest = flow.sent_digest;
  }
  mover.finish(KvDirection::receive, flow.target.transfer, got.piece, end);
  if (sabotage_ == FabricSabotage::corrupt_after_digest) {
    byte_at(flow.to, 3) ^= std::byte{0x40};
  }
}

void SimFabric::end_both(Flow& flow, const std::string& reason) {
  const PieceEnd end{false, reason, 0, 0};
  if (flow.source.mover) {
    flow.source.mover->finish(KvDirection::send, flow.source.transfer, flow.source.piece.piece,
                              end);
  }
  if (flow.wanted && flow.target.mover) {
    flow.target.mover->finish(KvDirection::receive, flow.target.transfer, flow.target.piece.piece,
                              end);
  }
}

// ---------------------------------------------------------------- early ends

template <class Which>
void SimFabric::withdraw_waiting(std::map<Key, Half>& waiting, bool sends,
                                 const std::string& reason, Which which) {
  for (auto it = waiting.begin(); it != waiting.end();) {
    if (!which(it->second)) {
      ++it;
      continue;
    }
    const Half half = std::move(it->second);
    it = waiting.erase(it);
    half.mover->finish(sends ? KvDirection::send : KvDirection::receive, half.transfer,
                       half.piece.piece, {false, reason, 0, 0});
  }
}

void SimFabric::withdraw(SimMover* mover, TransferId transfer) {
  const auto mine = [&](const Half& half) {
    return half.mover == mover && half.transfer == transfer;
  };
  withdraw_waiting(receives_, false, "cancelled", mine);
  if (sabotage_ == FabricSabotage::skip_quarantine) {
    for (auto& [id, flow] : flows_) {
      if (!mine(flow.target)) continue;
      mover->finish(KvDirection::receive, transfer, flow.target.piece.piece,
                    {false, "cancelled", 0, 0});
    }
  }
  withdraw_waiting(sends_, true, "cancelled",
                   [&](const Half& half) { return mine(half) && half.withdrawable; });
}

void SimFabric::peer_down(SimMover* mover, uint32_t rank, uint32_t incarnation) {
  const auto lost = [&](const Half& half) {
    return half.mover == mover && names(half.peer, rank, incarnation);
  };
  withdraw_waiting(sends_, true, "the peer is gone", lost);
  withdraw_waiting(receives_, false, "the peer is gone", lost);
  SimRandom& random = world_.random();
  for (auto& [id, flow] : flows_) {
    const Micros delay = random.between(kTearDownUsMin, kTearDownUsMax);
    if (lost(flow.source)) {
      // Nothing reads the blocks any more; what the target has of them ends a little later.
      mover->finish(KvDirection::send, flow.source.transfer, flow.source.piece.piece,
                    {false, "the peer is gone", 0, 0});
      flow.source.mover = nullptr;
      end_receive_later(id, delay, "the sender gave the transfer up");
    } else if (lost(flow.target) && !flow.source.mover) {
      end_receive_later(id, delay, "the sender's process is gone");
    }
  }
}

void SimFabric::end_receive_later(uint64_t id, Micros delay, const std::string& reason) {
  world_.at(delay, [this, id, reason] {
    const auto found = flows_.find(id);
    if (found == flows_.end()) return;
    end_both(found->second, reason);
    flows_.erase(found);
  });
}

void SimFabric::leave(SimMover* mover) {
  const auto mine = [&](const auto& entry) { return entry.second.mover == mover; };
  std::erase_if(sends_, mine);
  std::erase_if(receives_, mine);
  for (auto& [id, flow] : flows_) {
    const bool source = flow.source.mover == mover;
    const bool target = flow.target.mover == mover;
    if (source) flow.source.mover = nullptr;
    if (target) flow.target.mover = nullptr;
    // Found out in the end even when nobody says so: a dead connection does not last for ever.
    const bool drained = !flow.wanted && flow.target.rank == mover->host_.rank();
    if (source || target || drained)
      end_receive_later(id, kForsakenUs, "the peer's process is gone");
  }
}

std::set<BlockId> SimFabric::written_blocks(const SimMover& mover) const {
  std::set<BlockId> blocks;
  const auto add = [&](const Half& half) {
    if (half.mover == &mover) {
      blocks.insert(half.piece.blocks.begin(), half.piece.blocks.end());
    }
  };
  for (const auto& [key, half] : receives_) add(half);
  for (const auto& [id, flow] : flows_) {
    if (flow.wanted) add(flow.target);
  }
  return blocks;
}

}  // namespace baton
