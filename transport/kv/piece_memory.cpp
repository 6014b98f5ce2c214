#include "transport/kv/piece_memory.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "runtime/layout/packing.h"

namespace baton {
namespace {

constexpr uint64_t kCacheBytes = 64 << 10;  // copied and digested at a time

Stretches stretches_of(const BlockStore& store, const KvTransfer& transfer, const KvPiece& piece,
                       uint32_t rank, const std::vector<BlockRun>& runs) {
  Stretches out;
  for (uint32_t i = 0; i < piece.part.blocks; ++i) {
    const BlockId id = transfer.blocks[piece.part.first_block + i];
    const std::span<std::byte> block = store.bytes(rank, id);
    for (const BlockRun& run : runs) {
      const std::span<std::byte> part = block.subspan(run.offset, run.bytes);
      if (!out.empty() && out.back().data() + out.back().size() == part.data()) {
        out.back() = {out.back().data(), out.back().size() + part.size()};
      } else {
        out.push_back(part);
      }
    }
  }
  return out;
}

// Finds a place of the wire in stretches.
struct Cursor {
  const Stretches& stretches;
  size_t index = 0;
  uint64_t offset = 0;

  explicit Cursor(const Stretches& of, uint64_t at) : stretches(of), offset(at) { settle(); }
  bool ended() const { return index == stretches.size(); }
  std::span<std::byte> rest() const { return stretches[index].subspan(offset); }
  void advance(uint64_t bytes) {
    offset += bytes;
    settle();
  }
  void settle() {
    while (index < stretches.size() && offset >= stretches[index].size()) {
      offset -= stretches[index++].size();
    }
  }
};

}  // namespace

Stretches target_stretches(const BlockStore& store, const KvTransfer& transfer,
                           const KvPiece& piece) {
  const Route& route = transfer.plan->routes[piece.part.route];
  return stretches_of(store, transfer, piece, route.target_rank, route.target_runs);
}

Stretches source_stretches(const BlockStore& store, const KvTransfer& transfer,
                           const KvPiece& piece) {
  const Route& route = transfer.plan->routes[piece.part.route];
  CHECK(!route.source_runs.empty());
  return stretches_of(store, transfer, piece, route.source_rank, route.source_runs);
}

void pack_from(const BlockStore& store, const KvTransfer& transfer, const KvPiece& piece,
               std::span<std::byte> out) {
  const Route& route = transfer.plan->routes[piece.part.route];
  std::vector<const std::byte*> blocks;
  const Range range = source_blocks_of(*transfer.plan, piece.part, transfer.tokens);
  for (uint32_t i = range.begin; i < range.end; ++i) {
    blocks.push_back(store.bytes(route.source_rank, transfer.blocks[i]).data());
  }
  pack_piece(*transfer.plan, piece.part, transfer.tokens, blocks, out);
}

uint64_t digest_of(const Stretches& stretches) {
  Hasher64 hasher;
  for (const std::span<std::byte> part : stretches) hasher.add(part);
  return hasher.value();
}

CopyDigests copy_digested(const Stretches& from, const Stretches& to, bool digests) {
  Hasher64 sent;
  Hasher64 arrived;
  Cursor source(from, 0);
  Cursor target(to, 0);
  while (!source.ended()) {
    const std::span<std::byte> in = source.rest();
    const std::span<std::byte> out = target.rest();
    const uint64_t bytes = std::min<uint64_t>({in.size(), out.size(), kCacheBytes});
    if (digests) sent.add(in.first(bytes));
    std::memcpy(out.data(), in.data(), bytes);
    if (digests) arrived.add(out.first(bytes));
    source.advance(bytes);
    target.advance(bytes);
  }
  CHECK(target.ended());
  if (!digests) return {};
  return {sent.value(), arrived.value()};
}

std::byte& byte_at(const Stretches& stretches, uint64_t at) {
  return Cursor(stretches, at).rest().front();
}

void copy_between(const Stretches& from, const Stretches& to, uint64_t begin, uint64_t size) {
  Cursor source(from, begin);
  Cursor target(to, begin);
  while (size > 0) {
    const std::span<std::byte> in = source.rest();
    const std::span<std::byte> out = target.rest();
    const uint64_t bytes = std::min<uint64_t>({in.size(), out.size(), size});
    std::memcpy(out.data(), in.data(), bytes);
    source.advance(bytes);
    target.advance(bytes);
    size -= bytes;
  }
}

}  // namespace baton
