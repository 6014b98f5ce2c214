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

const StreamChecker::Expected* StreamChecker::expected(const JobRecord& job) {
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
  Expected& streams = expected_[job.request];
  for (uint32_t choice = 0; choice < job.submit.n; ++choice) {
    streams.push_back(expect_stream(rules_, job.submit, prompt, request->second.seed, choice));
  }
  return &streams;
}

void StreamChecker::stretch(const JobRecord& job, const ClientTokens& part) {
  if (job.end != JobEnd::none) complain(job, "tokens after the terminal event");
  const size_t has = job.streams[part.choice].ids.size();
  if (part.seq != has) {
    complain(job, "a stretch begins at " + std::to_string(part.seq) + ", the client has " +
                      std::to_string(has) + " tokens");
  }
  const Expected* all = expected(job);
  if (!all) return complain(job, "tokens of a request that was never admitted");
  const ExpectedStream* right = &all->at(part.choice);
  for (size_t i = 0; i < part.ids.size(); ++i) {
    const size_t at = part.seq + i;
    if (at >= right->ids.size()) {
      return complain(
          job, "more tokens than the " + std::to_string(right->ids.size()) + " that it must yield");
    }
    if (part.ids[i] != right->ids[at]) {
      return complain(job, "choice " + std::to_string(part.choice) + ": token " +
                               std::to_string(at) + " is " + std::to_string(part.ids[i]) +
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
  const Expected* right = expected(job);
  if (!right) return complain(job, "a result of a request that was never admitted");
  check_result(job, *right);
}

void StreamChecker::check_result(const JobRecord& job, const Expected& right) {
  if (job.done.choices.size() != right.size()) {
    return complain(job, "a result of " + std::to_string(job.done.choices.size()) + " choices, " +
                             std::to_string(right.size()) + " were asked for");
  }
  size_t tokens = 0;
  for (uint32_t choice = 0; choice < right.size(); ++choice) {
    check_choice(job, choice, right[choice]);
    tokens += right[choice].ids.size();
  }
  const bool scored = job.submit.sampling.prompt_logprobs >= 0;
  if (scored && job.done.prompt_logprobs != right[0].prompt_logprobs) {
    complain(job, "the prompt's log-probabilities are wrong");
  }
  if (job.done.usage.completion_tokens != tokens) {
    complain(job, "usage counts " + std::to_string(job.done.usage.completion_tokens) +
                      " tokens, the client got " + std::to_string(tokens));
  }
}

void StreamChecker::check_choice(const JobRecord& job, uint32_t choice,
                                 const ExpectedStream& right) {
  const ChoiceResult& got = job.done.choices[choice];
  const StreamRecord& seen = job.streams[choice];
  if (got.ids != right.ids) complain(job, "the result has other ids than the model yields");
  if (wants_logprobs(job) && got.logprobs != right.logprobs) {
    complain(job, "the result has other log-probabilities than the model yields");
  }
  if (got.text != right.text) complain(job, "the result has another text than its ids");
  if (got.finish != right.finish) {
    complain(job, "it finished with " + std::to_string(static_cast<int>(got.finish)) +
                      ", expected " + std::to_string(static_cast<int>(right.finish)));
  }
  if (!job.submit.stream) return;
  // Who was away may get the whole result before the rest of the stream.
  const bool whole = !job.disconnected;
  const bool same_ids = seen.ids.size() <= got.ids.size() &&
                        std::equal(seen.ids.begin(), seen.ids.end(), got.ids.begin());
  if (!same_ids || (whole && seen.ids.size() != got.ids.size())) {
    complain(job, "the stream and the result have different ids");
  }
  const bool same_text = got.text.starts_with(seen.text);
  if (!same_text || (whole && seen.text.size() != got.text.size())) {
    complain(job, "the stream and the result have different texts");
  }
}

}  // namespace baton
