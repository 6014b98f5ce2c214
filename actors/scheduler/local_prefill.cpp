#include "actors/scheduler/local_prefill.h"

#include <algorithm>

namespace baton {
namespace {

// So many running sequences make a token that is computed beside them cost twice as much.
constexpr uint64_t kSequencesPerToken = 4;
// KV bytes whose hand-off takes as long as computing one token.
constexpr uint64_t kBytesPerToken = uint64_t{1} << 20;
// The automatic rule's longest prompt: running sequences are slowed down for at most so long.
constexpr uint64_t kAutomaticMax = 256;

}  // namespace

uint32_t local_tokens_max(const LocalPrefillPolicy& policy, const LocalPrefillLoad& load) {
  if (!policy.allowed()) return 0;
  if (!load.prefill_alive) return UINT32_MAX;
  if (policy.mode == LocalPrefillPolicy::Mode::fixed) return policy.tokens;
  // m tokens: m * (1 + sequences / 4) here, against ahead + m * bytes / 1 MiB of waiting there; in
  // 1024ths of a token.
  constexpr uint64_t kOne = 1024;
  const uint64_t here = kOne + load.sequences * kOne / kSequencesPerToken;
  const uint64_t moved = load.kv_bytes_per_token * kOne / kBytesPerToken;
  const uint64_t ahead = std::min(load.tokens_ahead, UINT64_MAX / kOne) * kOne;
  const uint64_t most = here > moved ? ahead / (here - moved) : (ahead > 0 ? kAutomaticMax : 0);
  return static_cast<uint32_t>(std::min(most, kAutomaticMax));
}

}  // namespace baton
