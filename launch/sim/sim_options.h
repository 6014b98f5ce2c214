#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/time.h"

namespace baton {

// Deliberately broken variants of the cluster. Each must be found by the checker that it is named
// for; the harness breaks the actors from outside, so that no actor carries a switch.
enum class Sabotage : uint8_t {
  none,
  end_receives_early,    // a piece is called complete before its bytes are there
  skip_quarantine,       // cancelled receives end at once while bytes still come
  corrupt_after_digest,  // KV bytes change after they were verified
  accept_stale_epoch,    // tokens of a fenced life are taken for current ones
  swap_tokens,           // two neighbouring tokens change places
  wrong_logprob,
  lose_client_tokens,  // a stretch of a stream does not reach the client
  lose_terminal,       // the client never hears how its job ended
  repeat_terminal,
  garble_text,
  double_lease,  // a decode actor names blocks that another transfer holds
  lose_slot_freed,
  lose_kv_sent,  // a prefill actor never learns that its blocks are free
  ignore_cancel,
  stop_decoding,   // a decode actor beats but steps no more
  overfill_queue,  // more requests are queued than the limit says
  write_shared,    // a block that several sequences share is written without a copy
  free_twice,      // a decode actor frees one choice's slot in the place of another's
  mix_choices,     // tokens of two choices of a request change places
};
const char* sabotage_name(Sabotage sabotage) noexcept;
// All of them, `none` excluded.
std::vector<Sabotage> all_sabotages();

struct SimOptions {
  uint64_t seed = 1;
  Sabotage sabotage = Sabotage::none;
  bool calm = false;  // nothing is wrong with the cluster; clients still do as they like
  std::function<void(const std::string&)> trace;
};

// What a checker found wrong.
struct Finding {
  std::string checker;
  std::string text;
};

struct SimReport {
  uint64_t seed = 0;
  std::vector<Finding> findings;
  uint64_t trace_hash = 0;
  uint64_t deliveries = 0;
  Micros virtual_us = 0;
  std::string plan;  // what the seed drew, in one line

  uint64_t jobs = 0;
  uint64_t done = 0;
  uint64_t refused = 0;  // busy, cancelled and failed ones
  uint64_t tokens = 0;   // received by clients
  uint64_t migrations = 0;
  uint64_t preemptions = 0;
  uint64_t crashes = 0;
  uint64_t restarts = 0;  // of actors
  uint64_t stalls = 0;
  uint64_t cuts = 0;
  uint64_t stale = 0;    // messages and tokens that a fence dropped
  uint64_t corrupt = 0;  // pieces whose digest was wrong

  bool ok() const { return findings.empty(); }
};

// Runs one seed: a cluster drawn from it, under faults drawn from it, then healed; and all
// checkers. The same options give the same report.
SimReport run_seed(const SimOptions& options);

}  // namespace baton
