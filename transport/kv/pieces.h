#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "transport/kv/block_store.h"

namespace baton {

// Divides a transfer into pieces of as many whole blocks as piece_bytes_max allows (at least one);
// piece i has tag tag_first + i. Pure: both sides compute the same division from their own tables.
std::vector<KvPiece> divide_pieces(const std::vector<BlockId>& blocks, const KvGeometry& geometry,
                                   uint64_t piece_bytes_max, uint32_t tag_first);

// XXH3 of a piece's blocks, in order. The blocks must be in the store. thread-safe
uint64_t digest_blocks(const BlockStore& store, const std::vector<BlockId>& blocks);

// Fails with invalid_argument and a sentence unless the pieces name blocks of this store, none
// twice, with the bytes that the geometry gives, under distinct tags and numbers 0, 1, ...
Result<void> check_transfer(const KvTransfer& transfer, const BlockStore& store,
                            uint64_t piece_bytes_max);

// Compares what a sender announces with what this side reserved; nothing of it is trusted, sizes
// come from this side's geometry. Fails with stale (another epoch or sender), not_found (another
// transfer), or corrupt (other pieces, tags, blocks or sizes), and says which.
Result<void> verify_post(const KvTransfer& expected, const KvTransfer& announced,
                         const BlockStore& store);

// Fails with corrupt unless the bytes that arrived are those that were announced.
Result<void> verify_arrival(const KvPiece& announced, const KvReceived& received);

}  // namespace baton
