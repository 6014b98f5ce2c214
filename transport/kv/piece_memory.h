#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "runtime/layout/packing.h"
#include "transport/kv/block_store.h"

namespace baton {

// Parts of pools that a piece is read from or written to, in the order of the wire; those that
// follow each other in memory joined.
using Stretches = std::vector<std::span<std::byte>>;

// A place of the wire within stretches, which stay as they are.
struct StretchPlace {
  size_t index = 0;
  uint64_t offset = 0;

  bool ended(const Stretches& of) const { return index == of.size(); }
  // From here to the end of the stretch. Precondition: not ended.
  std::span<std::byte> rest(const Stretches& of) const { return of[index].subspan(offset); }
  void advance(const Stretches& of, uint64_t bytes);
};

// Where a piece goes, in the pools of its target.
Stretches target_stretches(const BlockStore& store, const KvTransfer& transfer,
                           const KvPiece& piece);
// Where its bytes are, in the pools of its source. Precondition: they need no packing (the route
// has source_runs).
Stretches source_stretches(const BlockStore& store, const KvTransfer& transfer,
                           const KvPiece& piece);

// Reads a piece from the pools of its source as it goes on the wire, a slice at a time: what the
// plan converts or regroups is packed. The transfer and the store outlive it.
class PieceReader {
 public:
  PieceReader(const BlockStore& store, const KvTransfer& transfer, const KvPiece& piece);
  // Slices have at least so many bytes.
  size_t slice_bytes_min() const { return packer_ ? packer_->unit_bytes() : 1; }
  // Fills the beginning of `out` with what comes next; says how many bytes, 0 at the end.
  size_t read(std::span<std::byte> out);

 private:
  size_t copy(std::span<std::byte> out);

  std::optional<PiecePacker> packer_;
  Stretches stretches_;  // if nothing is packed
  StretchPlace place_;
};

// Puts the bytes of the wire where they belong, past the caches: whoever reads them next does so
// after the rest of the transfer has come.
class PieceWriter {
 public:
  explicit PieceWriter(Stretches target) : target_(std::move(target)) {}
  // Another thread may be told of the bytes when this has returned.
  void write(std::span<const std::byte> bytes);
  bool ended() const { return place_.ended(target_); }

 private:
  Stretches target_;
  StretchPlace place_;
};

// Packs a piece into piece.bytes bytes at `out`. thread-safe
void pack_from(const BlockStore& store, const KvTransfer& transfer, const KvPiece& piece,
               std::span<std::byte> out);
// XXH3 of the bytes in order, however they are cut.
uint64_t digest_of(const Stretches& stretches);
// Bytes that are read, digested and stored at a time, while they are in a core's own cache.
constexpr size_t kSliceBytes = size_t{32} << 10;

// The byte at a place of the wire.
std::byte& byte_at(const Stretches& stretches, uint64_t at);
// Copies bytes [begin, begin + size) of the wire.
void copy_between(const Stretches& from, const Stretches& to, uint64_t begin, uint64_t size);

}  // namespace baton
