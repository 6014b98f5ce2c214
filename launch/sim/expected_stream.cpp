#include "launch/sim/expected_stream.h"

#include <algorithm>

namespace baton {
namespace {

bool contains(const std::vector<TokenId>& ids, TokenId id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

// Where the first of the stop strings begins in the text, or npos.
size_t find_stop(const std::string& text, const std::vector<std::string>& stops) {
  size_t first = std::string::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop));
  return first;
}

std::vector<float> score(const FakeModel& model, uint64_t weights,
                         const std::vector<TokenId>& prompt) {
  std::vector<float> logprobs;
  FakeState state(weights);
  for (const TokenId token : prompt) {
    if (state.position > 0) logprobs.push_back(fake_logprob(state.digest, token));
    state.take(model, token);
  }
  return logprobs;
}

}  // namespace

FakeState::FakeState(const FakeModel& model, uint64_t with, const std::vector<TokenId>& prompt,
                     const std::vector<TokenId>& ids)
    : FakeState(with) {
  for (const TokenId token : prompt) take(model, token);
  for (const TokenId token : ids) take(model, token);
}

ExpectedStream expect_stream(const ExpectedRules& rules, const Submit& submit,
                             const std::vector<TokenId>& prompt, uint64_t seed, uint32_t choice,
                             const WeightsOfToken& weights_of, uint64_t prompt_weights) {
  ExpectedStream expected;
  const FakeModel& model = rules.model;
  expected.prompt_logprobs = score(model, prompt_weights, prompt);
  FakeState state(model, weights_of(0), prompt, {});
  while (expected.finish == Finish::none) {
    const auto generated = static_cast<uint32_t>(expected.ids.size());
    if (submit.has_max_tokens && generated >= submit.max_tokens) {
      expected.finish = Finish::length;
      break;
    }
    // Other weights: everything before is computed again with those.
    if (const uint64_t weights = weights_of(generated); weights != state.weights) {
      state = FakeState(model, weights, prompt, expected.ids);
    }
    const FakeSample next = fake_sample(model, state.digest, state.position, seed, choice);
    expected.ids.push_back(next.token);
    expected.logprobs.push_back(next.logprob);
    state.take(model, next.token);
    const bool may_stop = generated + 1 >= submit.min_tokens;
    const bool ends =
        contains(submit.stop_ids, next.token) || (!submit.ignore_eos && next.token == model.eos);
    if (may_stop && ends) expected.finish = Finish::stop;
    if (expected.finish == Finish::none && state.position >= rules.context_max) {
      expected.finish = Finish::length;
    }
    expected.text = rules.tokenizer->decode(expected.ids, true);
    const size_t stop = find_stop(expected.text, submit.stop);
    if (stop != std::string::npos) {
      expected.text.resize(stop);
      expected.finish = Finish::stop;
    }
  }
  return expected;
}

}  // namespace baton
