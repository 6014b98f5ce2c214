#include "transport/kv/piece_memory.h"

#include <algorithm>
#include <cstring>

#include "kernels/stream_copy.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace baton {
namespace {

// What is asked for while one stretch is copied: the beginning of one that comes after it.
constexpr size_t kStretchesAhead = 2;
constexpr size_t kFetchBytes = 4096;

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

}  // namespace

void StretchPlace::advance(const Stretches& of, uint64_t bytes) {
  offset += bytes;
  while (index < of.size() && offset >= of[index].size()) offset -= of[index++].size();
}

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

PieceReader::PieceReader(const BlockStore& store, const KvTransfer& transfer,
                         const KvPiece& piece) {
  const Route& route = transfer.plan->routes[piece.part.route];
  if (!route.source_runs.empty()) {
    stretches_ = source_stretches(store, transfer, piece);
    return;
  }
  std::vector<const std::byte*> blocks;
  const Range range = source_blocks_of(*transfer.plan, piece.part, transfer.tokens);
  for (uint32_t i = range.begin; i < range.end; ++i) {
    blocks.push_back(store.bytes(route.source_rank, transfer.blocks[i]).data());
  }
  packer_.emplace(*transfer.plan, piece.part, transfer.tokens, std::move(blocks));
}

size_t PieceReader::read(std::span<std::byte> out) {
  return packer_ ? packer_->next(out) : copy(out);
}

size_t PieceReader::copy(std::span<std::byte> out) {
  size_t done = 0;
  while (done < out.size() && !place_.ended(stretches_)) {
    const std::span<std::byte> rest = place_.rest(stretches_);
    const size_t bytes = std::min(rest.size(), out.size() - done);
    if (bytes == rest.size() && place_.index + kStretchesAhead < stretches_.size()) {
      const std::span<std::byte> next = stretches_[place_.index + kStretchesAhead];
      fetch_ahead(next.data(), std::min(next.size(), kFetchBytes));
    }
    gather_copy(out.data() + done, rest.data(), bytes, rest.size());
    done += bytes;
    place_.advance(stretches_, bytes);
  }
  return done;
}

void PieceWriter::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    CHECK(!ended());
    const std::span<std::byte> rest = place_.rest(target_);
    const size_t part = std::min(rest.size(), bytes.size());
    stream_copy(rest.data(), bytes.data(), part);
    bytes = bytes.subspan(part);
    place_.advance(target_, part);
  }
  stream_fence();
}

void pack_from(const BlockStore& store, const KvTransfer& transfer, const KvPiece& piece,
               std::span<std::byte> out) {
  CHECK(out.size() == piece.bytes);
  PieceReader reader(store, transfer, piece);
  CHECK(reader.read(out) == out.size());
}

uint64_t digest_of(const Stretches& stretches) {
  Hasher64 hasher;
  for (const std::span<std::byte> part : stretches) hasher.add(part);
  return hasher.value();
}

std::byte& byte_at(const Stretches& stretches, uint64_t at) {
  StretchPlace place;
  place.advance(stretches, at);
  return place.rest(stretches).front();
}

void copy_between(const Stretches& from, const Stretches& to, uint64_t begin, uint64_t size) {
  StretchPlace source;
  StretchPlace target;
  source.advance(from, begin);
  target.advance(to, begin);
  while (size > 0) {
    const std::span<std::byte> in = source.rest(from);
    const std::span<std::byte> out = target.rest(to);
    const uint64_t bytes = std::min<uint64_t>({in.size(), out.size(), size});
    std::memcpy(out.data(), in.data(), bytes);
    source.advance(from, bytes);
    target.advance(to, bytes);
    size -= bytes;
  }
}

}  // namespace baton
