#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "transport/kv/block_store.h"

namespace baton {

// The pieces of a transfer as one side names them: piece i has tag tag_first + i and the blocks of
// this side's table that it touches. Pure: both sides compute the same ones from their own tables.
// The table covers `tokens`.
std::vector<KvPiece> divide_pieces(const RoutedPlan& plan, KvDirection direction,
                                   uint32_t from_token, uint32_t tokens,
                                   const std::vector<BlockId>& table, uint32_t tag_first);

// Fails with invalid_argument and a sentence unless the plan is one of this store's instance, the
// table covers the tokens with blocks of its pool, none twice, and the pieces are those of
// divide_pieces, under distinct tags.
Result<void> check_transfer(const KvTransfer& transfer, KvDirection direction,
                            const BlockStore& store);

// Compares what a sender announces with what this side reserved; nothing of it is trusted. Fails
// with stale (another epoch or sender), not_found (another transfer), or corrupt (other pieces,
// tags, blocks or sizes), and says which.
Result<void> verify_post(const KvTransfer& expected, const KvTransfer& announced);

}  // namespace baton
