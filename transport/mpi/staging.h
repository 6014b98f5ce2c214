#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace baton {

// A few buffers for pieces on their way, made when a pair is connected and as large as its plan
// says. A peer has at most its share of them, so that one that takes nothing in, or stops in the
// middle, does not keep others from theirs. Owned by the data thread.
class Staging {
 public:
  Staging(size_t buffers, uint32_t per_peer) : buffers_(buffers), per_peer_(per_peer) {}

  // Buffers have `bytes` bytes from now on, at least, and room for a digest behind them; those in
  // use when they come back.
  void reserve(uint64_t bytes) {
    if (bytes <= bytes_) return;
    bytes_ = bytes;
    for (Buffer& buffer : free_) buffer = make();
    while (free_.size() + taken_ < buffers_) free_.push_back(make());
  }
  bool available(uint32_t peer) const {
    const auto held = held_.find(peer);
    return !free_.empty() && (held == held_.end() || held->second < per_peer_);
  }

  bool all_taken() const { return free_.empty(); }

  struct Buffer {
    std::unique_ptr<std::byte[]> bytes;
    uint64_t size = 0;
    uint32_t peer = 0;
    std::span<std::byte> span(uint64_t used) const { return {bytes.get(), used}; }
    // A place for the digest directly behind so many bytes. Null where a number cannot lie there.
    uint64_t* trailer(uint64_t used) const {
      if (!bytes || used % alignof(uint64_t) != 0) return nullptr;
      return reinterpret_cast<uint64_t*>(bytes.get() + used);
    }
  };
  // Precondition: available().
  Buffer take(uint32_t peer) {
    Buffer buffer = std::move(free_.back());
    free_.pop_back();
    ++taken_;
    ++held_[peer];
    buffer.peer = peer;
    return buffer;
  }
  // `given_up`: MPI has not said that it is done with the buffer.
  void give_back(Buffer buffer, bool given_up) {
    --taken_;
    --held_[buffer.peer];
    if (buffer.size >= bytes_) return free_.push_back(std::move(buffer));
    free_.push_back(make());
    if (given_up) keep_for_ever(std::move(buffer.bytes));
  }

 private:
  // MPI may touch it for as long as the process lives.
  static void keep_for_ever(std::unique_ptr<std::byte[]> bytes) {
    static auto& kept = *new std::vector<std::unique_ptr<std::byte[]>>;
    kept.push_back(std::move(bytes));
  }
  // Written once, so that no piece waits for the system to find memory.
  Buffer make() const {
    return {std::make_unique<std::byte[]>(bytes_ + sizeof(uint64_t)), bytes_, 0};
  }

  const size_t buffers_;
  const uint32_t per_peer_;
  uint64_t bytes_ = 0;
  size_t taken_ = 0;
  std::map<uint32_t, uint32_t> held_;  // by peer
  std::vector<Buffer> free_;
};

}  // namespace baton
