#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/actor/sampling.h"
#include "runtime/base/result.h"

namespace baton {

constexpr bool enum_valid(ErrorCode code) {
  return code <= ErrorCode::internal;
}

// Why something was not done, as every refusal says it.
struct Refusal {
  ErrorCode code = ErrorCode::internal;
  std::string text;
  int64_t retry_after_ms = 0;  // 0 = repeating it will not help
  BATON_FIELDS(code, text, retry_after_ms)
};

// Where time and bytes went, for one request; filled by whoever knows, as it travels.
struct Usage {
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t completion_tokens = 0;
  uint64_t kv_bytes = 0;    // handed over from prefill to decode
  int64_t queue_us = 0;     // admission to Run
  int64_t prefill_us = 0;   // Run to first token
  int64_t transfer_us = 0;  // first send to last piece received
  uint32_t prefill_rank = 0;
  uint32_t decode_rank = 0;
  uint32_t attempts = 0;  // retries after lost workers
  uint64_t weights_version = 0;
  bool exact = true;  // false: bits may differ from another run's
  BATON_FIELDS(prompt_tokens, cached_tokens, completion_tokens, kv_bytes, queue_us, prefill_us,
               transfer_us, prefill_rank, decode_rank, attempts, weights_version, exact)
};

// A counter as people see it.
struct NamedCount {
  std::string name;
  uint64_t value = 0;
  BATON_FIELDS(name, value)
};

// One token of one choice of one request, as it goes to the gateway's commit point.
struct TokenEntry {
  RequestId request;
  uint32_t choice = 0;
  Epoch epoch;
  uint32_t seq = 0;  // 0 = the first generated token
  TokenId id = 0;
  float logprob = 0;
  std::vector<TokenLogprob> top;
  Finish finish = Finish::none;  // set on the last one
  bool has_token = true;         // false: only `finish` is meant (max_tokens = 0, errors)
  bool kept = false;             // its sender keeps it until it is acknowledged: ask there for more
  BATON_FIELDS(request, choice, epoch, seq, id, logprob, top, finish, has_token, kept)
};

}  // namespace baton
