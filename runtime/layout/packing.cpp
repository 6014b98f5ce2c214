#include "runtime/layout/packing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/stream_copy.h"
#include "runtime/base/check.h"
#include "runtime/layout/kv_layout_of.h"

namespace baton {
namespace {

constexpr size_t kUnitsAhead = 2;  // asked for while one is packed

}  // namespace

PiecePacker::PiecePacker(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens,
                         std::vector<const std::byte*> source_blocks)
    : first_block_(piece.first_block),
      first_source_block_(source_blocks_of(routed, piece, tokens).begin),
      source_blocks_(std::move(source_blocks)) {
  CHECK(source_blocks_.size() == source_blocks_of(routed, piece, tokens).size());
  const Route& route = routed.routes[piece.route];
  const Box& owned = routed.plan.source.ranks[route.source_rank];
  what_.source = kv_layout_of(routed.plan.source.geometry(route.source_rank));
  what_.target = kv_layout_of(routed.plan.target.geometry(route.target_rank));
  what_.tokens = std::min(what_.source.block_tokens, what_.target.block_tokens);
  for (const Box& part : route.parts) {
    for (uint32_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
      for (const bool is_key : {true, false}) {
        for (uint32_t head = part.heads.begin; head < part.heads.end; ++head) {
          const uint32_t there = layer - owned.layers.begin;
          const uint32_t inner = head - owned.heads.begin;
          units_.push_back(
              {is_key ? what_.source.k_offset(there, inner) : what_.source.v_offset(there, inner),
               is_key});
        }
      }
    }
  }
  end_ = units_.size() * piece.blocks;
  CHECK(end_ * unit_bytes() == piece.bytes);
}

size_t PiecePacker::next(std::span<std::byte> out) {
  size_t written = 0;
  for (; at_ < end_ && out.size() - written >= unit_bytes(); ++at_) {
    fetch(at_ + kUnitsAhead);
    pack(units_[at_ % units_.size()], first_block_ + at_ / units_.size(), out.data() + written);
    written += unit_bytes();
  }
  CHECK(written > 0 || at_ == end_);
  return written;
}

void PiecePacker::pack(const Unit& unit, size_t block, std::byte* out) {
  what_.is_key = unit.is_key;
  const size_t begin = block * what_.target.block_tokens;
  const size_t end = begin + what_.target.block_tokens;
  if (!reaches(end - 1)) std::memset(out, 0, unit_bytes());
  for (size_t token = begin; token < end && reaches(token); token += what_.tokens) {
    what_.source_token = token % what_.source.block_tokens;
    what_.target_token = token - begin;
    kv_repack(what_, source_blocks_[source_block(token)] + unit.source_offset, out);
  }
}

// Units are short and far from each other: nobody else would ask for the next one in time.
void PiecePacker::fetch(size_t index) const {
  if (index >= end_) return;
  const Unit& unit = units_[index % units_.size()];
  const size_t begin = (first_block_ + index / units_.size()) * what_.target.block_tokens;
  const size_t end = begin + what_.target.block_tokens;
  const size_t row = what_.source.head_bytes() / what_.source.block_tokens;
  for (size_t token = begin; token < end && reaches(token); token += what_.tokens) {
    // Of V, the tokens' own rows; of K, whose rows run along the tokens, all of it.
    const size_t skipped = unit.is_key ? 0 : token % what_.source.block_tokens * row;
    const size_t bytes = unit.is_key ? what_.source.head_bytes() : what_.tokens * row;
    fetch_ahead(source_blocks_[source_block(token)] + unit.source_offset + skipped, bytes);
  }
}

void pack_piece(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens,
                std::vector<const std::byte*> source_blocks, std::span<std::byte> out) {
  CHECK(out.size() == piece.bytes);
  PiecePacker packer(routed, piece, tokens, std::move(source_blocks));
  if (!out.empty()) CHECK(packer.next(out) == out.size());
}

}  // namespace baton
