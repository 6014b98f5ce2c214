#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/common.h"
#include "actors/protocol/decode.h"
#include "actors/protocol/scheduler.h"

// What a prefill actor says and hears.

namespace baton {

// Scheduler -> prefill: compute this prompt and hand it over. The envelope carries request, epoch
// and remaining time.
struct Run {
  static constexpr MsgKind kind = MsgKind::run;
  std::vector<TokenId> ids;  // the prompt
  // Per choice of `choices`: tokens the client already has. Those of a single choice are computed
  // here, with the prompt; several compute their own on the decode side.
  std::vector<std::vector<TokenId>> committed;
  uint32_t from_token = 0;  // positions that the target already holds
  ActorId gateway;
  ActorId target;  // decode actor
  TransferId transfer;
  uint32_t tag_first = 0;
  PlanDigest plan;
  std::vector<BlockId> target_blocks;  // in table order
  SamplingParams sampling;
  StopParams stops;
  Usage usage;                       // what is known so far (queue time, attempts)
  std::vector<uint32_t> choices{0};  // numbers of those that are to run, ascending
  BATON_FIELDS(ids, committed, from_token, gateway, target, transfer, tag_first, plan,
               target_blocks, sampling, stops, usage, choices)
};

struct RunRefused {
  static constexpr MsgKind kind = MsgKind::run_refused;
  TransferId transfer;
  Refusal refusal;
  BATON_FIELDS(transfer, refusal)
};

// Prefill -> scheduler: computed. `finish` other than none: every choice ended with its first
// token; there is no transfer and the reservation can be released.
struct PrefillDone {
  static constexpr MsgKind kind = MsgKind::prefill_done;
  TransferId transfer;
  Usage usage;
  Finish finish = Finish::none;
  BATON_FIELDS(transfer, usage, finish)
};

struct PrefillFailed {
  static constexpr MsgKind kind = MsgKind::prefill_failed;
  TransferId transfer;
  Refusal refusal;
  bool retryable = true;  // false: the request itself is at fault (numerical error, too long)
  BATON_FIELDS(transfer, refusal, retryable)
};

}  // namespace baton
