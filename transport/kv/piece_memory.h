#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "transport/kv/block_store.h"

namespace baton {

// Parts of pools that a piece is read from or written to, in the order of the wire; those that
// follow each other in memory joined.
using Stretches = std::vector<std::span<std::byte>>;

// Where a piece goes, in the pools of its target.
Stretches target_stretches(const BlockStore& store, const KvTransfer& transfer,
                           const KvPiece& piece);
// Where its bytes are, in the pools of its source. Precondition: they need no packing (the route
// has source_runs).
Stretches source_stretches(const BlockStore& store, const KvTransfer& transfer,
                           const KvPiece& piece);
// Packs a piece from the pools of its source into piece.bytes bytes at `out`. thread-safe
void pack_from(const BlockStore& store, const KvTransfer& transfer, const KvPiece& piece,
               std::span<std::byte> out);

// XXH3 of the bytes in order, however they are cut.
uint64_t digest_of(const Stretches& stretches);
// Copies a whole piece and, if asked, digests what is read and what was written, both while they
// are in the cache.
struct CopyDigests {
  uint64_t sent = 0;
  uint64_t arrived = 0;
};
CopyDigests copy_digested(const Stretches& from, const Stretches& to, bool digests);
// The byte at a place of the wire.
std::byte& byte_at(const Stretches& stretches, uint64_t at);
// Copies bytes [begin, begin + size) of the wire.
void copy_between(const Stretches& from, const Stretches& to, uint64_t begin, uint64_t size);

}  // namespace baton
