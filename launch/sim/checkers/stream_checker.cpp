#include "launch/sim/checkers/stream_checker.h"

#include <algorithm>
#include <utility>

namespace baton {

void StreamChecker::admitted(RequestId request, const Admit& admit) {
  Request& known = requests_[request];
  known.prompt = admit.ids;
  known.seed = admit.sampling.seed;
}

void StreamChecker::complain(const JobRecord& job, const std::string& text) {
  findings_.add("stream", "job " + std::to_string(job.submit.job) + ", request " +
                              std::to_string(job.request.value) + ": " + text);
}

StreamChecker::Request* StreamChecker::find(const JobRecord& job) {
  const auto found = requests_.find(job.request);
  if (found == requests_.end()) return nullptr;
  Request& request = found->second;
  if (std::exchange(request.compared, true)) return &request;
  const std::string bytes(request.prompt.begin(), request.prompt.end());
  if (job.submit.text.empty() ? request.prompt != job.submit.ids : bytes != job.submit.text) {
    complain(job, "another prompt was admitted than the client's");
  }
  if (job.submit.has_seed && request.seed != job.submit.sampling.seed) {
    complain(job, "another seed was admitted than the client's");
  }
  return &request;
}

// A stretch does not say which version it comes from, so any that was committed may explain it; the
// result does say, and is held to it.
bool StreamChecker::follow(const JobRecord& job, Request& request, TokenId token,
                           const float* logprob) {
  const FakeModel& model = rules_.model;
  bool explained = false;
  for (const auto& [version, weights] : weights_.committed()) {
    auto [state, fresh] = request.states.try_emplace(weights, weights);
    if (fresh) state->second = FakeState(model, weights, request.prompt, request.ids);
    const FakeSample next =
        fake_sample(model, state->second.digest, state->second.position, request.seed, 0);
    explained |= next.token == token && (logprob == nullptr || next.logprob == *logprob);
  }
  if (!explained) {
    complain(job, "token " + std::to_string(request.ids.size()) + " is " + std::to_string(token) +
                      ", or has a log-probability, that no committed version of the weights gives");
  }
  request.ids.push_back(token);
  for (auto& [weights, state] : request.states) state.take(model, token);
  return explained;
}

void StreamChecker::stretch(const JobRecord& job, const ClientTokens& part) {
  if (job.end != JobEnd::none) complain(job, "tokens after the terminal event");
  if (part.seq != job.ids.size()) {
    complain(job, "a stretch begins at " + std::to_string(part.seq) + ", the client has " +
                      std::to_string(job.ids.size()) + " tokens");
  }
  Request* request = find(job);
  if (!request) return complain(job, "tokens of a request that was never admitted");
  const bool scored = wants_logprobs(job);
  if (scored && part.logprobs.size() != part.ids.size()) {
    return complain(job, "log-probabilities are missing");
  }
  for (size_t i = 0; i < part.ids.size(); ++i) {
    const size_t at = part.seq + i;
    if (at > request->ids.size()) return;  // a gap, which was said
    if (at == request->ids.size()) {
      if (!follow(job, *request, part.ids[i], scored ? &part.logprobs[i] : nullptr)) return;
    } else if (part.ids[i] != request->ids[at]) {
      return complain(job, "token " + std::to_string(at) + " is " + std::to_string(part.ids[i]) +
                               ", it was " + std::to_string(request->ids[at]) + " before");
    }
  }
}

uint64_t StreamChecker::weights_of(uint64_t version) const {
  const uint64_t* weights = weights_.weights_of(version);
  return weights == nullptr ? ~uint64_t{0} : *weights;
}

bool StreamChecker::check_spans(const JobRecord& job) {
  const std::vector<WeightsSpan>& spans = job.done.usage.weights;
  const size_t tokens = job.done.choices[0].ids.size();
  bool sound = spans.empty() == (tokens == 0);
  for (size_t i = 0; i < spans.size(); ++i) {
    const bool first = i == 0;
    sound = sound && (first ? spans[i].from_token == 0
                            : spans[i].from_token > spans[i - 1].from_token &&
                                  spans[i].version > spans[i - 1].version);
    sound = sound && spans[i].from_token < tokens;
    if (weights_.weights_of(spans[i].version) == nullptr) {
      complain(job, "the result names version " + std::to_string(spans[i].version) +
                        " of the weights, which was never committed");
      return false;
    }
  }
  if (!sound) complain(job, "the spans of versions do not cover the result");
  return sound;
}

void StreamChecker::finished(const JobRecord& job) {
  if (job.end != JobEnd::done) return;
  const Request* request = find(job);
  if (!request) return complain(job, "a result of a request that was never admitted");
  if (job.done.choices.size() != 1) return complain(job, "a result without its one choice");
  if (!check_spans(job)) return;
  const std::vector<WeightsSpan>& spans = job.done.usage.weights;
  const WeightsOfToken weights = [&](uint32_t token) {
    uint64_t version = job.done.usage.weights_version;
    for (const WeightsSpan& span : spans) {
      if (span.from_token <= token) version = span.version;
    }
    return weights_of(version);
  };
  check_result(job, expect_stream(rules_, job.submit, request->prompt, request->seed, weights,
                                  weights_of(job.done.usage.prompt_weights)));
}

void StreamChecker::check_result(const JobRecord& job, const ExpectedStream& right) {
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
