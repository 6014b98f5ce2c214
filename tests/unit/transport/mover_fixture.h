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
#include "transport/kv/pieces.h"

namespace baton::test {

// A KV pool of plain bytes.
class MemoryPool {
 public:
  MemoryPool(const KvGeometry& geometry, uint32_t blocks)
      : geometry_(geometry), blocks_(blocks), bytes_(blocks * geometry.block_bytes()) {}

  BlockStore store() {
    return {geometry_, blocks_, [this](BlockId block) { return bytes_of(block); }};
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
  uint64_t hash(BlockId block) { return digest_blocks(store(), {block}); }

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

inline KvTransfer make_transfer(uint64_t id, ActorId peer, const std::vector<BlockId>& blocks,
                                const KvGeometry& geometry, uint64_t piece_bytes_max,
                                uint32_t tag_first) {
  return {TransferId{id}, peer, RequestId{id * 10}, Epoch{1},
          divide_pieces(blocks, geometry, piece_bytes_max, tag_first)};
}

}  // namespace baton::test
