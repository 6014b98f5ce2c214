#include "actors/worker/ending.h"

#include <algorithm>

namespace baton {

Finish finish_after(const StopParams& stops, TokenId token, uint32_t generated, uint32_t positions,
                    uint32_t context_max) {
  const bool may_stop = generated >= stops.min_tokens;
  if (may_stop &&
      std::find(stops.stop_ids.begin(), stops.stop_ids.end(), token) != stops.stop_ids.end()) {
    return Finish::stop;
  }
  if (generated >= stops.max_tokens || positions >= context_max) return Finish::length;
  return Finish::none;
}

bool needs_history(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1 || sampling.presence_penalty != 0 ||
         sampling.frequency_penalty != 0;
}

}  // namespace baton
