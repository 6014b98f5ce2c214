#include "runtime/layout/binding.h"

#include <algorithm>
#include <string>

#include "kernels/kv_layout.h"

namespace baton {
namespace {

KvLayout layout_of(const KvGeometry& g) {
  return KvLayout{g.layers, g.kv_heads, g.head_dim, g.block_tokens,
                  static_cast<KvElement>(g.dtype)};
}

Result<void> check_tables(const Placement& placement, uint32_t tokens, const BlockTables& tables,
                          const char* side) {
  auto fail = [&](const std::string& text) {
    return Error{ErrorCode::invalid_argument,
                 std::string("the ") + side + "'s block tables: " + text};
  };
  if (tables.size() != placement.ranks.size()) {
    return fail(std::to_string(tables.size()) + " tables for " +
                std::to_string(placement.ranks.size()) + " ranks");
  }
  const size_t needed = (size_t{tokens} + placement.block_tokens - 1) / placement.block_tokens;
  for (size_t rank = 0; rank < tables.size(); ++rank) {
    if (tables[rank].size() < needed) {
      return fail("rank " + std::to_string(rank) + " has " + std::to_string(tables[rank].size()) +
                  " blocks, " + std::to_string(tokens) + " tokens need " + std::to_string(needed));
    }
    std::vector<BlockId> sorted = tables[rank];
    std::sort(sorted.begin(), sorted.end());
    auto twice = std::adjacent_find(sorted.begin(), sorted.end());
    if (twice != sorted.end()) {
      return fail("rank " + std::to_string(rank) + " names block " + std::to_string(twice->value) +
                  " twice");
    }
  }
  return {};
}

// Emits the byte ranges of one segment, and joins those that follow each other on both sides.
class Binder {
 public:
  Binder(const Plan& plan, const Segment& segment, const std::vector<BlockId>& source_blocks,
         const std::vector<BlockId>& target_blocks, PeerRanges& out)
      : segment_(segment),
        source_box_(plan.source.ranks[segment.source_rank]),
        target_box_(plan.target.ranks[segment.target_rank]),
        source_(layout_of(plan.source.geometry(segment.source_rank))),
        target_(layout_of(plan.target.geometry(segment.target_rank))),
        source_blocks_(source_blocks),
        target_blocks_(target_blocks),
        unit_(std::min(source_.block_tokens, target_.block_tokens)),
        out_(out) {}

  void run(uint32_t tokens) {
    for (uint32_t at = 0; at < tokens; at += unit_) {
      for (uint32_t layer = segment_.layers.begin; layer < segment_.layers.end; ++layer) {
        for (bool value : {false, true}) {
          for (uint32_t head = segment_.heads.begin; head < segment_.heads.end; ++head) {
            value ? bind_values(at, layer, head) : bind_keys(at, layer, head);
          }
        }
      }
    }
  }

 private:
  // Keys run along the tokens of a block: one stretch per row of dimensions, unless both sides have
  // the same rows, which is when the whole part is one stretch.
  void bind_keys(uint32_t at, uint32_t layer, uint32_t head) {
    const size_t source_part =
        source_.k_offset(layer - source_box_.layers.begin, head - source_box_.heads.begin);
    const size_t target_part =
        target_.k_offset(layer - target_box_.layers.begin, head - target_box_.heads.begin);
    if (source_.block_tokens == target_.block_tokens) {
      return add(at, source_part, target_part, source_.head_bytes());
    }
    const uint32_t dims_per_row = source_.element == KvElement::bf16 ? 2 : 1;
    const size_t element = kv_element_bytes(source_.element);
    for (uint32_t dim = 0; dim < source_.head_dim; dim += dims_per_row) {
      add(at, source_part + source_.k_index(at % source_.block_tokens, dim) * element,
          target_part + target_.k_index(at % target_.block_tokens, dim) * element,
          size_t{unit_} * dims_per_row * element);
    }
  }

  // Values run along the dimensions: the tokens of a unit are one stretch on both sides.
  void bind_values(uint32_t at, uint32_t layer, uint32_t head) {
    const size_t element = kv_element_bytes(source_.element);
    add(at,
        source_.v_offset(layer - source_box_.layers.begin, head - source_box_.heads.begin) +
            source_.v_index(at % source_.block_tokens, 0) * element,
        target_.v_offset(layer - target_box_.layers.begin, head - target_box_.heads.begin) +
            target_.v_index(at % target_.block_tokens, 0) * element,
        size_t{unit_} * source_.head_dim * element);
  }

  void add(uint32_t at, size_t source_offset, size_t target_offset, size_t bytes) {
    const BlockRange range{source_blocks_[at / source_.block_tokens], source_offset,
                           target_blocks_[at / target_.block_tokens], target_offset, bytes};
    out_.bytes += bytes;
    if (!out_.ranges.empty()) {
      BlockRange& last = out_.ranges.back();
      if (last.source_block == range.source_block && last.target_block == range.target_block &&
          last.source_offset + last.bytes == source_offset &&
          last.target_offset + last.bytes == target_offset) {
        last.bytes += bytes;
        return;
      }
    }
    out_.ranges.push_back(range);
  }

  const Segment& segment_;
  const Box& source_box_;
  const Box& target_box_;
  const KvLayout source_;
  const KvLayout target_;
  const std::vector<BlockId>& source_blocks_;
  const std::vector<BlockId>& target_blocks_;
  const uint32_t unit_;  // tokens that share a block on both sides
  PeerRanges& out_;
};

}  // namespace

Result<std::vector<PeerRanges>> bind_plan(const Plan& plan, uint32_t tokens,
                                          const BlockTables& source_blocks,
                                          const BlockTables& target_blocks) {
  if (plan.source.dtype != plan.target.dtype || plan.source.inner != plan.target.inner) {
    return Error{ErrorCode::unsupported, whole_block_refusal(plan)};
  }
  if (auto ok = check_tables(plan.source, tokens, source_blocks, "source"); !ok.ok()) {
    return ok.error();
  }
  if (auto ok = check_tables(plan.target, tokens, target_blocks, "target"); !ok.ok()) {
    return ok.error();
  }
  std::vector<PeerRanges> peers;
  for (const Segment& segment : plan.segments) {
    auto same = std::find_if(peers.begin(), peers.end(), [&](const PeerRanges& peer) {
      return peer.source_rank == segment.source_rank && peer.target_rank == segment.target_rank;
    });
    if (same == peers.end()) {
      peers.push_back({segment.source_rank, segment.target_rank, {}, 0});
      same = peers.end() - 1;
    }
    Binder(plan, segment, source_blocks[segment.source_rank], target_blocks[segment.target_rank],
           *same)
        .run(tokens);
  }
  return peers;
}

}  // namespace baton
