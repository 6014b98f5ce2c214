#include "runtime/layout/packing.h"

#include <algorithm>
#include <cstring>

#include "kernels/kv_repack.h"
#include "runtime/base/check.h"
#include "runtime/layout/kv_layout_of.h"

namespace baton {
namespace {

// Packs the blocks of one piece, one (layer, k or v, head) after the other.
class Packer {
 public:
  Packer(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens,
         std::span<const std::byte* const> source_blocks)
      : route_(routed.routes[piece.route]),
        owned_(routed.plan.source.ranks[route_.source_rank]),
        first_source_block_(source_blocks_of(routed, piece, tokens).begin),
        source_blocks_(source_blocks) {
    what_.source = kv_layout_of(routed.plan.source.geometry(route_.source_rank));
    what_.target = kv_layout_of(routed.plan.target.geometry(route_.target_rank));
    what_.tokens = std::min(what_.source.block_tokens, what_.target.block_tokens);
  }

  // One block of the target; returns where the next one begins.
  std::byte* block(uint32_t index, std::byte* out) {
    for (const Box& part : route_.parts) {
      for (uint32_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
        for (const bool is_key : {true, false}) {
          for (uint32_t head = part.heads.begin; head < part.heads.end; ++head) {
            inner(index, layer - owned_.layers.begin, is_key, head - owned_.heads.begin, out);
            out += what_.target.head_bytes();
          }
        }
      }
    }
    return out;
  }

 private:
  void inner(uint32_t index, uint32_t layer, bool is_key, uint32_t head, std::byte* out) {
    what_.is_key = is_key;
    const size_t offset =
        is_key ? what_.source.k_offset(layer, head) : what_.source.v_offset(layer, head);
    const size_t begin = size_t{index} * what_.target.block_tokens;
    const size_t end = begin + what_.target.block_tokens;
    if (!reaches(end - 1)) std::memset(out, 0, what_.target.head_bytes());
    for (size_t token = begin; token < end && reaches(token); token += what_.tokens) {
      what_.source_token = token % what_.source.block_tokens;
      what_.target_token = token - begin;
      kv_repack(what_, source_blocks_[source_block(token)] + offset, out);
    }
  }

  size_t source_block(size_t token) const {
    return token / what_.source.block_tokens - first_source_block_;
  }
  bool reaches(size_t token) const { return source_block(token) < source_blocks_.size(); }

  const Route& route_;
  const Box& owned_;
  const size_t first_source_block_;
  const std::span<const std::byte* const> source_blocks_;
  KvRepack what_;
};

}  // namespace

void pack_piece(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens,
                std::span<const std::byte* const> source_blocks, std::span<std::byte> out) {
  CHECK(out.size() == piece.bytes);
  CHECK(source_blocks.size() == source_blocks_of(routed, piece, tokens).size());
  Packer packer(routed, piece, tokens, source_blocks);
  std::byte* next = out.data();
  for (uint32_t i = 0; i < piece.blocks; ++i) next = packer.block(piece.first_block + i, next);
  CHECK(next == out.data() + out.size());
}

}  // namespace baton
