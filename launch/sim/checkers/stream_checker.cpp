#include "launch/sim/checkers/stream_checker.h"

#include <algorithm>

namespace baton {

void StreamChecker::admitted(RequestId request, const Admit& admit) {
  requests_[request] = {admit.ids, admit.sampling.seed};
}

void StreamChecker::complain(const JobRecord& job, const std::string& text) {
  findings_.add("stream", "job " + std::to_string(job.submit.job) + ", request " +
                              std::to_string(job.request.value) + ": " + text);
}

const ExpectedStream* StreamChecker::expected(const JobRecord& job) {
  const auto known = expected_.find(job.request);
  if (known != expected_.end()) return &known->second;
  const auto request = requests_.find(job.request);
  if (request == requests_.end()) return nullptr;
  const std::vector<TokenId>& prompt = request->second.prompt;
  const std::string bytes(prompt.begin(), prompt.end());
  if (job.submit.text.empty() ? prompt != job.submit.ids : bytes != job.submit.text) {
    complain(job, "another prompt was admitted than the client's");
  }
  if (job.submit.has_seed && request->second.seed != job.submit.sampling.seed) {
    complain(job, "another seed was admitted than the client's");
  }
  return &expected_
              .emplace(job.request, expect_stream(rules_, job.submit, prompt, request->second.seed))
              .first->second;
}

void StreamChecker::stretch(const JobRecord& job, const ClientTokens& part) {
  if (job.end != JobEnd::none) complain(job, "tokens after the terminal event");
  if (part.seq != job.ids.size()) {
    complain(job, "a stretch begins at " + std::to_string(part.seq) + ", the client has " +
                      std::to_string(job.ids.size()) + " tokens");
  }
  const ExpectedStream* right = expected(job);
  if (!right) return complain(job, "tokens of a request that was never admitted");
  for (size_t i = 0; i < part.ids.size(); ++i) {
    const size_t at = part.seq + i;
    if (at >= right->ids.size()) {
      return complain(
          job, "more tokens than the " + std::to_string(right->ids.size()) + " that it must yield");
    }
    if (part.ids[i] != right->ids[at]) {
      return complain(job, "token " + std::to_string(at) + " is " + std::to_string(part.ids[i]) +
                               ", expected " + std::to_string(right->ids[at]));
    }
    if (!wants_logprobs(job)) continue;
    if (part.logprobs.size() != part.ids.size()) {
      return complain(job, "log-probabilities are missing");
    }
    if (part.logprobs[i] != right->logprobs[at]) {
      return complain(job, "the log-probability of token " + std::to_string(at) + " is wrong");
    }
  }
}

void StreamChecker::finished(const JobRecord& job) {
  if (job.end != JobEnd::done) return;
  const ExpectedStream* right = expected(job);
  if (!right) return complain(job, "a result of a request that was never admitted");
  check_result(job, *right);
}

void StreamChecker::check_result(const JobRecord& job, const ExpectedStream& right) {
  if (job.done.choices.size() != 1) return complain(job, "a result without its one choice");
  const ChoiceResult& got = job.done.choices[0];
  if (got.ids != right.ids) complain(job, "the result has other ids than the model yields");
  if (wants_logprobs(job) && got.logprobs != right.logprobs) {
    complain(job, "the result has other log-probabilities than the model yields");
  }
  if (got.text != right.text) complain(job, "the result has another text than its ids");
  if (got.finish != right.finish) {
    complain(job, "it finished with " + std::to_string(static_cast<int>(got.finish)) +
                      ", expected " + std::to_string(static_cast<int>(right.finish)));
  }
  const bool scored = job.submit.sampling.prompt_logprobs >= 0;
  if (scored && job.done.prompt_logprobs != right.prompt_logprobs) {
    complain(job, "the prompt's log-probabilities are wrong");
  }
  if (job.done.usage.completion_tokens != right.ids.size()) {
    complain(job, "usage counts " + std::to_string(job.done.usage.completion_tokens) +
                      " tokens, the client got " + std::to_string(right.ids.size()));
  }
  if (!job.submit.stream) return;
  // Who was away may get the whole result before the rest of the stream.
  const bool whole = !job.disconnected;
  const bool same_ids = job.ids.size() <= got.ids.size() &&
                        std::equal(job.ids.begin(), job.ids.end(), got.ids.begin());
  if (!same_ids || (whole && job.ids.size() != got.ids.size())) {
    complain(job, "the stream and the result have different ids");
  }
  const bool same_text = got.text.starts_with(job.text);
  if (!same_text || (whole && job.text.size() != got.text.size())) {
    complain(job, "the stream and the result have different texts");
  }
}

}  // namespace baton
