#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/kv_repack.h"
#include "runtime/layout/transfer.h"

namespace baton {

// Writes a piece as it goes on the wire, a slice at a time: gathers heads and layers from the
// source rank's blocks, regroups tokens and converts elements. Positions that the source's blocks
// do not reach become zero. Pure; made and used by one thread. The plan outlives it.
class PiecePacker {
 public:
  // `source_blocks` are the bytes of source_blocks_of(piece), in table order.
  PiecePacker(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens,
              std::vector<const std::byte*> source_blocks);

  // The target's inner part of one (layer, k or v, head): what is written at a time.
  size_t unit_bytes() const { return what_.target.head_bytes(); }
  // Writes as many units as fit, and says how many bytes that were; none when all are written.
  // Precondition: `out` holds one.
  size_t next(std::span<std::byte> out);

 private:
  struct Unit {
    size_t source_offset = 0;
    bool is_key = true;
  };
  void pack(const Unit& unit, size_t block, std::byte* out);
  void fetch(size_t index) const;
  size_t source_block(size_t token) const {
    return token / what_.source.block_tokens - first_source_block_;
  }
  bool reaches(size_t token) const { return source_block(token) < source_blocks_.size(); }

  std::vector<Unit> units_;  // of one block of the target
  const size_t first_block_;
  const size_t first_source_block_;
  const std::vector<const std::byte*> source_blocks_;
  KvRepack what_;
  size_t at_ = 0;  // the next unit, of all blocks
  size_t end_ = 0;
};

// The whole piece at once. `out` has piece.bytes bytes.
void pack_piece(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens,
                std::vector<const std::byte*> source_blocks, std::span<std::byte> out);

}  // namespace baton
