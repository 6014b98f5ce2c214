#pragma once

#include <functional>
#include <string>
#include <vector>

#include "actors/protocol/gateway.h"
#include "runtime/engine/fake_model.h"
#include "runtime/model/tokenizer.h"

namespace baton {

// What a request must yield, worked out from the fake model alone.
struct ExpectedStream {
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<float> prompt_logprobs;  // of prompt tokens 1..
  std::string text;
  Finish finish = Finish::none;
};

struct ExpectedRules {
  FakeModel model;
  const Tokenizer* tokenizer = nullptr;
  uint32_t context_max = 0;
};

// The fake model behind a sequence that was computed with one set of weights from its start.
struct FakeState {
  explicit FakeState(uint64_t with) : weights(with), digest(fake_start(with)) {}
  FakeState(const FakeModel& model, uint64_t with, const std::vector<TokenId>& prompt,
            const std::vector<TokenId>& ids);

  void take(const FakeModel& model, TokenId token) {
    digest = fake_step(model, digest, token, position++, weights);
  }

  uint64_t weights;
  uint64_t digest;
  uint32_t position = 0;
};

// Which weights token i of the completion comes from.
using WeightsOfToken = std::function<uint64_t(uint32_t)>;

// One choice. `prompt` and `seed` are those that the gateway admitted; all else is the client's own
// request.
ExpectedStream expect_stream(
    const ExpectedRules& rules, const Submit& submit, const std::vector<TokenId>& prompt,
    uint64_t seed, uint32_t choice,
    const WeightsOfToken& weights_of = [](uint32_t) { return kFakeFirstWeights; },
    uint64_t prompt_weights = kFakeFirstWeights);

}  // namespace baton
