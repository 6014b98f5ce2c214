#pragma once

#include <cstdint>

namespace baton {

// When a decode instance computes a prompt itself instead of having it prefilled elsewhere
// (conditional disaggregation). Pure; the scheduler asks at each placement.

struct LocalPrefillPolicy {
  enum class Mode : uint8_t {
    off = 0,        // never
    fixed = 1,      // up to `tokens` missing positions
    automatic = 2,  // where that is faster, by local_tokens_max()
  };
  Mode mode = Mode::off;
  uint32_t tokens = 0;

  bool allowed() const { return mode != Mode::off; }
};

struct LocalPrefillLoad {
  bool prefill_alive = true;        // an instance that could ever take the prompt
  uint64_t tokens_ahead = 0;        // queued at the prefill instance that would get it
  uint32_t sequences = 0;           // that run on the decode instance
  uint64_t kv_bytes_per_token = 0;  // that a hand-off moves
};

// The most missing positions (of prompt and committed tokens, behind what the decode side has in
// its prefix cache) that the decode instance is to compute itself; UINT32_MAX: any number.
//
// The automatic rule counts in tokens of prefill time. Elsewhere, the prompt waits for the tokens
// ahead of it and is then moved; here, it slows every running sequence down. It is computed here
// only if it would be done before its turn comes there: an idle prefill instance keeps its work.
uint32_t local_tokens_max(const LocalPrefillPolicy& policy, const LocalPrefillLoad& load);

}  // namespace baton
