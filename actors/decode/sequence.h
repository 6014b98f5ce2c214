#pragma once

#include <cstdint>
#include <vector>

#include "actors/protocol/decode.h"
#include "actors/protocol/gateway.h"
#include "runtime/actor/engine.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"
#include "runtime/engine/block_pool.h"

namespace baton {

// One running choice of a request: the owner of a decode slot. Its tokens are known; as many as
// `computed` are in its blocks. Each step computes some of those that are missing, and the one that
// reaches the end chooses the next token. Ordinary decoding is the case of one missing token.
struct Sequence {
  RequestId request;
  Epoch epoch;
  ActorId gateway;
  TransferId transfer;
  SlotLease slot;
  uint32_t choice = 0;
  uint64_t age = 0;        // of its request; smaller = it runs for longer; the youngest makes room
  uint64_t last_step = 0;  // the step that it was in last
  uint64_t weights = 0;    // version that it runs on

  std::vector<TokenId> tokens;  // prompt, then output
  uint32_t prompt_tokens = 0;
  uint32_t computed = 0;             // positions [0, computed) are in the blocks; < tokens.size()
  std::vector<BlockLease> blocks;    // in table order; those with other leases are only read
  std::vector<BlockId> block_table;  // their ids
  std::vector<BlockLease> spare;     // of its reservation; used before the pool's

  SamplingParams sampling;
  StopParams stops;
  bool scoring = false;              // the prompt's log-probabilities are collected here
  PromptScores scores;               // so far
  std::vector<RowSample> unchecked;  // the last of `tokens`: chosen, but not held against `stops`
  PrefixHash prefix_root;            // zero: nothing of it is kept for others
  std::vector<PrefixHash> names;     // of its full blocks, as far as they are known
  size_t kept_blocks = 0;            // that the prefix cache has been given
  bool local = false;                // its prompt is computed here, and that has not been reported
  Micros started_us = 0;
  Usage usage;                  // of its request, while local
  bool in_step = false;         // the step under way may write its blocks
  uint32_t in_step_tokens = 0;  // positions that it completes

  uint32_t size() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t missing() const { return size() - computed; }
  uint32_t generated() const { return size() - prompt_tokens; }
  // Nothing is to be chosen, only the prompt to be scored.
  bool only_scores() const { return generated() >= stops.max_tokens && unchecked.empty(); }
};

// The first position of the next row. Log-probabilities of a chunk's first token come from the
// logits of the one before it, so that one is computed again, with the same bits.
inline uint32_t row_start(const Sequence& sequence) {
  return sequence.scoring && sequence.computed > 0 ? sequence.computed - 1 : sequence.computed;
}

}  // namespace baton
