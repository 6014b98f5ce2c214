#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "runtime/layout/transfer.h"

namespace baton {

// Writes a piece as it goes on the wire: gathers heads and layers from the source rank's blocks,
// regroups tokens and converts elements. `source_blocks` are the bytes of source_blocks_of(piece),
// in table order. Positions that the source's blocks do not reach become zero. Pure; thread-safe.
// `out` has piece.bytes bytes.
void pack_piece(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens,
                std::span<const std::byte* const> source_blocks, std::span<std::byte> out);

}  // namespace baton
