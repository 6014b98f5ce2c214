#include "runtime/layout/transfer.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/base/check.h"
#include "runtime/layout/kv_layout_of.h"

namespace baton {
namespace {

Range group_layers(uint32_t layers, uint32_t group, uint32_t groups) {
  return {static_cast<uint32_t>(uint64_t{layers} * group / groups),
          static_cast<uint32_t>(uint64_t{layers} * (group + 1) / groups)};
}

Range overlap(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Where a part lies in a block of one rank, runs that follow each other joined.
void add_runs(const Placement& placement, uint32_t rank, const Box& part,
              std::vector<BlockRun>& runs) {
  const Box& owned = placement.ranks[rank];
  const KvLayout layout = kv_layout_of(placement.geometry(rank));
  const uint32_t head = part.heads.begin - owned.heads.begin;
  for (uint32_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
    for (const uint64_t offset : {layout.k_offset(layer - owned.layers.begin, head),
                                  layout.v_offset(layer - owned.layers.begin, head)}) {
      const uint64_t bytes = part.heads.size() * layout.head_bytes();
      if (!runs.empty() && runs.back().offset + runs.back().bytes == offset) {
        runs.back().bytes += bytes;
      } else {
        runs.push_back({offset, bytes});
      }
    }
  }
}

void finish(const Plan& plan, Route& route) {
  for (const Box& part : route.parts) {
    add_runs(plan.target, route.target_rank, part, route.target_runs);
    if (route.conversion == Conversion::copy) {
      add_runs(plan.source, route.source_rank, part, route.source_runs);
    }
  }
  for (const BlockRun& run : route.target_runs) route.block_bytes += run.bytes;
}

uint32_t blocks_per_piece(const RoutedPlan& routed, const Route& route) {
  const uint64_t fit = routed.terms.piece_bytes_max / route.block_bytes;
  return static_cast<uint32_t>(std::clamp<uint64_t>(fit, 1, UINT32_MAX));
}

uint32_t blocks_for(uint32_t tokens, uint32_t block_tokens) {
  return (tokens + block_tokens - 1) / block_tokens;
}

}  // namespace

uint64_t RoutedPlan::piece_bytes_largest() const {
  uint64_t largest = 0;
  for (const Route& route : routes) {
    largest = std::max(largest, blocks_per_piece(*this, route) * route.block_bytes);
  }
  return largest;
}

bool RoutedPlan::packs() const {
  return std::any_of(routes.begin(), routes.end(),
                     [](const Route& route) { return route.source_runs.empty(); });
}

RoutedPlan route_plan(Plan plan, const PairTerms& terms) {
  const uint32_t layers = plan.target.shape.layers;
  RoutedPlan routed{std::move(plan), terms, {}};
  routed.terms.layer_groups = std::clamp(terms.layer_groups, 1u, layers);
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, Route> routes;
  for (const Segment& segment : routed.plan.segments) {
    for (uint32_t group = 0; group < routed.terms.layer_groups; ++group) {
      const Range band =
          overlap(segment.layers, group_layers(layers, group, routed.terms.layer_groups));
      if (band.empty()) continue;
      Route& route = routes[{group, segment.target_rank, segment.source_rank}];
      route.source_rank = segment.source_rank;
      route.target_rank = segment.target_rank;
      route.layer_group = group;
      route.conversion = segment.conversion;
      route.parts.push_back({band, segment.heads});
    }
  }
  for (auto& [key, route] : routes) {
    finish(routed.plan, route);
    routed.routes.push_back(std::move(route));
  }
  return routed;
}

std::vector<TransferPiece> divide_transfer(const RoutedPlan& routed, uint32_t from_token,
                                           uint32_t tokens) {
  const uint32_t block_tokens = routed.plan.target.block_tokens;
  CHECK(from_token % block_tokens == 0);
  const uint32_t begin = from_token / block_tokens;
  const uint32_t end = blocks_for(tokens, block_tokens);
  std::vector<TransferPiece> pieces;
  for (uint32_t r = 0; r < routed.routes.size(); ++r) {
    const Route& route = routed.routes[r];
    const uint32_t each = blocks_per_piece(routed, route);
    for (uint32_t block = begin; block < end; block += std::min(each, end - block)) {
      const uint32_t blocks = std::min(each, end - block);
      pieces.push_back({r, block, blocks, blocks * route.block_bytes});
    }
  }
  return pieces;
}

uint32_t pieces_max(const RoutedPlan& routed, uint32_t tokens) {
  const uint32_t blocks = blocks_for(tokens, routed.plan.target.block_tokens);
  uint32_t count = 0;
  for (const Route& route : routed.routes) {
    count += blocks_for(blocks, blocks_per_piece(routed, route));
  }
  return count;
}

Range source_blocks_of(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens) {
  const uint32_t theirs = routed.plan.target.block_tokens;
  const uint32_t ours = routed.plan.source.block_tokens;
  const uint32_t begin = piece.first_block * theirs;
  const uint32_t end = std::min((piece.first_block + piece.blocks) * theirs, tokens);
  return {begin / ours, blocks_for(end, ours)};
}

}  // namespace baton
