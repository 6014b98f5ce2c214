#pragma once

#include <cstdint>
#include <vector>

#include "actors/protocol/gateway.h"
#include "actors/protocol/prefill.h"
#include "runtime/base/ids.h"
#include "runtime/base/time.h"
#include "runtime/engine/block_pool.h"

namespace baton {

enum class JobPhase : uint8_t {
  waiting = 0,    // in the packer, or in the pack that runs, between two steps
  computing = 1,  // one of the rows of the step under way
  handing = 2,    // computed; the mover has no room for its pieces yet
  sending = 3,    // pieces under way or sent: held until the decode side has adopted them
  closing = 4,    // over; its blocks go home when no piece and no step touches them any more
};

// One Run, from its arrival until its blocks are home.
struct PrefillJob {
  RequestId request;
  Epoch epoch;
  Run run;
  JobPhase phase = JobPhase::waiting;

  std::vector<TokenId> tokens;  // prompt, then what the client already has of a single choice
  uint32_t done = 0;            // positions that are computed
  bool in_step = false;         // the engine may still write its blocks
  std::vector<BlockLease> blocks;
  PromptScores scores;            // collected over the chunks
  std::vector<TokenEntry> first;  // per choice: the token that was sampled here, if one was

  std::vector<KvPiece> pieces;  // of the transfer, from phase `handing` on
  uint32_t pieces_pending = 0;  // that the mover has and that have not ended
  Micros arrived_us = 0;
  Micros deadline_us = kNever;    // of the request
  Micros hold_until_us = kNever;  // phase sending: a lost Adopted cannot leak the blocks

  uint32_t length() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t prompt_length() const { return static_cast<uint32_t>(run.ids.size()); }
  uint32_t committed() const { return length() - prompt_length(); }
  bool wants_scores() const { return run.sampling.prompt_logprobs >= 0; }
  // Only the prompt is asked for (or nothing is left to generate): no token is sampled.
  bool only_scores() const { return committed() >= run.stops.max_tokens; }
  // Of several choices, those that have tokens go on from them on the decode side.
  bool samples(size_t index) const {
    return !only_scores() && (run.choices.size() == 1 || run.committed[index].empty());
  }
  bool over() const { return phase == JobPhase::closing && pieces_pending == 0 && !in_step; }
};

}  // namespace baton
