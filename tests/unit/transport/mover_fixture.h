#pragma once

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "runtime/actor/wire.h"
#include "runtime/base/hash.h"
#include "tests/unit/layout/kv_instance.h"
#include "transport/kv/piece_memory.h"
#include "transport/kv/pieces.h"

namespace baton::test {

// A KV pool of plain bytes.
class MemoryPool {
 public:
  MemoryPool(const KvGeometry& geometry, uint32_t blocks)
      : geometry_(geometry), blocks_(blocks), bytes_(blocks * geometry.block_bytes()) {}

  BlockStore store() {
    return {single_rank_placement(geometry_), blocks_,
            [this](uint32_t, BlockId block) { return bytes_of(block); }};
  }
  std::span<std::byte> bytes_of(BlockId block) {
    return std::span(bytes_).subspan(block.value * geometry_.block_bytes(),
                                     geometry_.block_bytes());
  }
  // Bytes that depend on the seed and the position, so that two blocks never look alike.
  void fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::byte& b : bytes_) b = static_cast<std::byte>(random());
  }
  void clear() { std::memset(bytes_.data(), 0, bytes_.size()); }
  bool same(BlockId mine, MemoryPool& other, BlockId theirs) {
    return std::memcmp(bytes_of(mine).data(), other.bytes_of(theirs).data(),
                       geometry_.block_bytes()) == 0;
  }
  uint64_t hash(BlockId block) { return hash64(bytes_of(block)); }
  // Of blocks as they follow each other on the wire.
  uint64_t digest(const std::vector<BlockId>& blocks) {
    Stretches parts;
    for (BlockId block : blocks) parts.push_back(bytes_of(block));
    return digest_of(parts);
  }

 private:
  KvGeometry geometry_;
  uint32_t blocks_;
  std::vector<std::byte> bytes_;
};

// Takes a mover's mail on any thread and keeps the end of each piece; a second end is an error.
class PieceEnds {
 public:
  using Key = std::pair<TransferId, uint32_t>;

  void take(const Mail& mail) {
    const std::lock_guard lock(mutex_);
    if (mail.envelope.kind == MsgKind::kv_sent) {
      const KvSent sent = *decode_body<KvSent>(mail.body, {});
      if (!sent_.emplace(Key{sent.transfer, sent.piece}, sent).second) ++repeated_;
    } else {
      const KvReceived got = *decode_body<KvReceived>(mail.body, {});
      if (!received_.emplace(Key{got.transfer, got.piece}, got).second) ++repeated_;
    }
    last_ = mail.envelope;
    changed_.notify_all();
  }
  std::function<void(Mail)> sink() {
    return [this](const Mail& mail) { take(mail); };
  }

  // True when so many ends have come within the time.
  bool wait_sent(size_t count, int within_ms = 10'000) { return wait(sent_, count, within_ms); }
  bool wait_received(size_t count, int within_ms = 10'000) {
    return wait(received_, count, within_ms);
  }
  std::map<Key, KvSent> sent() const { return copy(sent_); }
  std::map<Key, KvReceived> received() const { return copy(received_); }
  int repeated() const { return copy(repeated_); }
  Envelope last() const { return copy(last_); }

 private:
  template <class T>
  T copy(const T& value) const {
    const std::lock_guard lock(mutex_);
    return value;
  }
  template <class Map>
  bool wait(const Map& map, size_t count, int within_ms) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::milliseconds(within_ms),
                             [&] { return map.size() >= count; });
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, KvSent> sent_;
  std::map<Key, KvReceived> received_;
  int repeated_ = 0;
  Envelope last_;
};

// `count` different blocks of a pool, in random order.
inline std::vector<BlockId> random_blocks(uint32_t count, uint32_t pool, std::mt19937_64& random) {
  std::vector<BlockId> ids(pool);
  for (uint32_t i = 0; i < pool; ++i) ids[i] = BlockId{i};
  std::shuffle(ids.begin(), ids.end(), random);
  ids.resize(count);
  return ids;
}

inline std::shared_ptr<const RoutedPlan> plan_between(const Placement& source,
                                                      const Placement& target,
                                                      const PairTerms& terms) {
  return std::make_shared<const RoutedPlan>(route_plan(*plan_reshard(source, target), terms));
}

// One side of a transfer by any plan.
inline KvTransfer make_transfer(uint64_t id, ActorId peer, std::shared_ptr<const RoutedPlan> plan,
                                KvDirection direction, uint32_t from_token, uint32_t tokens,
                                const std::vector<BlockId>& table, uint32_t tag_first) {
  KvTransfer made;
  made.transfer = {id};
  made.peer = peer;
  made.request = {id * 10};
  made.epoch = {1};
  made.plan = std::move(plan);
  made.from_token = from_token;
  made.tokens = tokens;
  made.blocks = table;
  made.pieces = divide_pieces(*made.plan, direction, from_token, tokens, table, tag_first);
  return made;
}

// One of whole blocks, between equal instances of one rank: both sides' pieces look alike.
inline KvTransfer make_transfer(uint64_t id, ActorId peer, const std::vector<BlockId>& blocks,
                                const KvGeometry& geometry, const PairTerms& terms,
                                uint32_t tag_first) {
  const Placement whole = single_rank_placement(geometry);
  return make_transfer(id, peer, plan_between(whole, whole, terms), KvDirection::send, 0,
                       static_cast<uint32_t>(blocks.size()) * geometry.block_tokens, blocks,
                       tag_first);
}
inline KvTransfer make_transfer(uint64_t id, ActorId peer, const std::vector<BlockId>& blocks,
                                const KvGeometry& geometry, uint64_t piece_bytes_max,
                                uint32_t tag_first) {
  return make_transfer(id, peer, blocks, geometry, PairTerms{1, piece_bytes_max, true}, tag_first);
}

// The pools of all ranks of an instance, for a mover.
inline BlockStore store_of_instance(KvInstance& instance) {
  return {instance.placement, instance.blocks,
          [&instance](uint32_t rank, BlockId block) { return instance.bytes(rank, block); }};
}

}  // namespace baton::test
