#pragma once

#include <cstdint>
#include <vector>

#include "runtime/layout/plan.h"

namespace baton {

// `bytes` bytes at an offset of one block.
struct BlockRun {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const BlockRun&, const BlockRun&) = default;
};

// What one source rank sends to one target rank of one group of layers, for every block of the
// target: the unit that messages are made of. On the wire a block's part has the target's stored
// form in the target's order: the sender gathers and converts, the receiver only puts plain runs in
// place.
struct Route {
  uint32_t source_rank = 0;
  uint32_t target_rank = 0;
  uint32_t layer_group = 0;
  Conversion conversion = Conversion::copy;
  std::vector<Box> parts;             // in wire order, numbered as the model numbers them
  std::vector<BlockRun> target_runs;  // of a block of the target rank, in wire order, joined
  // The same bytes in a block of the source rank, if nothing is converted: the sender then needs no
  // packing. Otherwise empty.
  std::vector<BlockRun> source_runs;
  uint64_t block_bytes = 0;  // on the wire, of one block of the target
};

// What both ends of a pair have agreed on when they were connected.
struct PairTerms {
  uint32_t layer_groups = 1;     // layers are sent in so many groups
  uint64_t piece_bytes_max = 0;  // of one message; one that has a single block may be larger
  bool digests = true;           // bytes are digested before and after their way
  BATON_FIELDS(layer_groups, piece_bytes_max, digests)
  friend bool operator==(const PairTerms&, const PairTerms&) = default;
};

// A plan and the routes that it consists of, worked out once. Immutable: shared by the actor that
// starts transfers and the thread that moves their bytes.
struct RoutedPlan {
  Plan plan;
  PairTerms terms;
  std::vector<Route> routes;  // by layer group, then target rank, then source rank

  uint64_t piece_bytes_largest() const;
  // Some bytes cannot go straight from the source's blocks: the sender packs them.
  bool packs() const;
};

// Pure. Precondition: the plan is one of plan_reshard's.
RoutedPlan route_plan(Plan plan, const PairTerms& terms);

// One message of a transfer: a run of the target's blocks on one route.
struct TransferPiece {
  uint32_t route = 0;
  uint32_t first_block = 0;  // position in the target's block table, which begins at token 0
  uint32_t blocks = 0;       // of the target
  uint64_t bytes = 0;
  BATON_FIELDS(route, first_block, blocks, bytes)
  friend bool operator==(const TransferPiece&, const TransferPiece&) = default;
};

// The messages that bring the tokens [from_token, tokens): both sides compute the same ones from
// the same numbers. Whole blocks of the target are brought, the last one with what it has beyond
// `tokens`. None if the target has all tokens already. from_token is a multiple of the target's
// block size.
std::vector<TransferPiece> divide_transfer(const RoutedPlan& routed, uint32_t from_token,
                                           uint32_t tokens);
// How many they are at most, for any from_token: what tags are taken for.
uint32_t pieces_max(const RoutedPlan& routed, uint32_t tokens);

// The source's blocks that a piece is made from, as positions in the source's table.
Range source_blocks_of(const RoutedPlan& routed, const TransferPiece& piece, uint32_t tokens);

}  // namespace baton
