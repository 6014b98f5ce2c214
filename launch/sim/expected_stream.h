#pragma once

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

// One choice. `prompt` and `seed` are those that the gateway admitted; all else is the client's own
// request.
ExpectedStream expect_stream(const ExpectedRules& rules, const Submit& submit,
                             const std::vector<TokenId>& prompt, uint64_t seed, uint32_t choice);

}  // namespace baton
