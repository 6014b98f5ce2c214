#pragma once

#include <cstdint>
#include <vector>

#include "actors/protocol/decode.h"
#include "runtime/base/ids.h"
#include "runtime/engine/block_pool.h"

namespace baton {

// One running sequence: the owner of a decode slot.
struct Sequence {
  RequestId request;
  Epoch epoch;
  ActorId gateway;
  TransferId transfer;
  SlotLease slot;
  uint32_t choice = 0;
  uint64_t age = 0;        // smaller = it runs for longer; the youngest makes room
  uint64_t last_step = 0;  // the step that it was in last

  std::vector<BlockLease> blocks;
  std::vector<BlockId> block_table;  // their ids
  TokenId last_token = 0;            // not in the KV store yet
  uint32_t position = 0;             // of last_token: as many are in the KV store
  uint32_t prompt_tokens = 0;
  uint32_t generated = 0;        // new tokens, committed ones of earlier lives included
  std::vector<TokenId> history;  // prompt and output, while penalties need them
  SamplingParams sampling;
  StopParams stops;
  bool in_step = false;
};

}  // namespace baton
