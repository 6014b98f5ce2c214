#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/layout/plan.h"

namespace baton {

// `bytes` bytes at an offset of a source block that become those at an offset of a target block.
struct BlockRange {
  BlockId source_block;
  uint64_t source_offset = 0;
  BlockId target_block;
  uint64_t target_offset = 0;
  uint64_t bytes = 0;
  friend bool operator==(const BlockRange&, const BlockRange&) = default;
};

// All that one source rank sends to one target rank for one request: one packed message, in order.
struct PeerRanges {
  uint32_t source_rank = 0;
  uint32_t target_rank = 0;
  std::vector<BlockRange> ranges;
  uint64_t bytes = 0;
};

// A request's block tables: blocks[rank][i] holds tokens [i * block_tokens, (i+1) * block_tokens).
// A table may be longer than the tokens need; what is beyond them is not touched.
using BlockTables = std::vector<std::vector<BlockId>>;

// Turns a plan into byte ranges for the first `tokens` positions of a request, ranges that follow
// each other on both sides joined; between equal placements a range is a whole block. Bytes are
// moved in units of the smaller block size: a last, partly filled unit moves whole (unwritten
// positions of a block are zero). Pure. Fails with invalid_argument when a table is short or names
// a block twice, and with unsupported when the plan changes the dtype.
Result<std::vector<PeerRanges>> bind_plan(const Plan& plan, uint32_t tokens,
                                          const BlockTables& source_blocks,
                                          const BlockTables& target_blocks);

}  // namespace baton
