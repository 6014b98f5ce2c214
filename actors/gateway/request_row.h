#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/idempotency.h"
#include "actors/gateway/sessions.h"
#include "actors/gateway/stream.h"
#include "actors/protocol/gateway.h"

namespace baton {

// Where a request is, as its gateway sees it.
enum class RequestPhase {
  preparing,  // on the worker pool: text becomes ids
  admitting,  // Admit is with the scheduler
  running,    // it may bring tokens
  closing,    // all tokens are here; DoneAck, or the prompt's log-probabilities, are not
  finished,   // the terminal event is settled; kept for Fetch
};

// What a gateway knows about one request, from Submit until its result is forgotten.
struct RequestRow {
  RequestId id;
  RequestPhase phase = RequestPhase::preparing;
  Submit submit;  // without the prompt, which is `prompt` once it is ids
  Fingerprint content;
  std::vector<JobKey> waiters;  // those whose job this is

  std::vector<TokenId> prompt;
  std::optional<Stream> stream;        // from admitting on
  std::optional<PromptScores> scores;  // log-probabilities of the prompt
  bool scores_wanted = false;
  std::vector<uint32_t> acked;   // per choice: what the workers know to be committed
  std::vector<uint32_t> gap_at;  // per choice: committed when the gap timer was set

  Usage usage;
  std::optional<Refusal> refusal;  // how it ended, unless with a result
  Micros deadline_at = kNever;
  Micros first_commit_at = kNever;
  Micros ended_at = kNever;
  Micros expires_at = kNever;  // when the result is forgotten
  size_t kept_bytes = 0;

  TimerId deadline_timer;  // value 0: none
  TimerId gap_timer;
  TimerId close_timer;

  bool live() const { return phase != RequestPhase::finished; }
  Epoch epoch() const { return stream ? stream->epoch() : Epoch{}; }
};

}  // namespace baton
