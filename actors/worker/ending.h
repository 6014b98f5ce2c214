#pragma once

#include <cstdint>

#include "runtime/actor/sampling.h"
#include "runtime/base/ids.h"

// When a sequence ends, apart from stop strings; the same rules at the hand-off and while decoding.

namespace baton {

// `generated` counts all new tokens, committed ones of earlier lives and `token` itself included;
// `positions` is the length of the whole sequence with it. A stop id counts as a token of the
// output; with fewer than min_tokens it does not end the sequence. One that fills the context ends.
Finish finish_after(const StopParams& stops, TokenId token, uint32_t generated, uint32_t positions,
                    uint32_t context_max);

// True if the choice of the next token depends on the tokens before it.
bool needs_history(const SamplingParams& sampling);

}  // namespace baton
