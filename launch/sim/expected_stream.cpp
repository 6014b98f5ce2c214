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

}  // namespace

ExpectedStream expect_stream(const ExpectedRules& rules, const Submit& submit,
                             const std::vector<TokenId>& prompt, uint64_t seed, uint32_t choice) {
  ExpectedStream expected;
  const FakeModel& model = rules.model;
  uint64_t digest = kFakeStart;
  uint32_t position = 0;
  for (TokenId token : prompt) {
    if (position > 0) expected.prompt_logprobs.push_back(fake_logprob(digest, token));
    digest = fake_step(model, digest, token, position++);
  }
  while (expected.finish == Finish::none) {
    const auto generated = static_cast<uint32_t>(expected.ids.size());
    if (submit.has_max_tokens && generated >= submit.max_tokens) {
      expected.finish = Finish::length;
      break;
    }
    const FakeSample next = fake_sample(model, digest, position, seed, choice);
    expected.ids.push_back(next.token);
    expected.logprobs.push_back(next.logprob);
    digest = fake_step(model, digest, next.token, position++);
    const bool may_stop = generated + 1 >= submit.min_tokens;
    const bool ends =
        contains(submit.stop_ids, next.token) || (!submit.ignore_eos && next.token == model.eos);
    if (may_stop && ends) expected.finish = Finish::stop;
    if (expected.finish == Finish::none && position >= rules.context_max) {
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
