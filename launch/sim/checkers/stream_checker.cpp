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
bool StreamChecker::follow(const JobRecord& job, Request& request, uint32_t choice, TokenId token,
                           const float* logprob) {
  const FakeModel& model = rules_.model;
  Shown& shown = request.shown[choice];
  bool explained = false;
  for (const auto& [version, weights] : weights_.committed()) {
    auto [state, fresh] = shown.states.try_emplace(weights, weights);
    if (fresh) state->second = FakeState(model, weights, request.prompt, shown.ids);
    const FakeSample next =
        fake_sample(model, state->second.digest, state->second.position, request.seed, choice);
    explained |= next.token == token && (logprob == nullptr || next.logprob == *logprob);
  }
  if (!explained) {
    complain(job, "choice " + std::to_string(choice) + ": token " +
                      std::to_string(shown.ids.size()) + " is " + std::to_string(token) +
                      ", or has a log-probability, that no committed version of the weights gives");
  }
  shown.ids.push_back(token);
  for (auto& [weights, state] : shown.states) state.take(model, token);
  return explained;
}

void StreamChecker::stretch(const JobRecord& job, const ClientTokens& part) {
  if (job.end != JobEnd::none) complain(job, "tokens after the terminal event");
  const size_t has = job.streams[part.choice].ids.size();
  if (part.seq != has) {
    complain(job, "a stretch begins at " + std::to_string(part.seq) + ", the client has " +
                      std::to_string(has) + " tokens");
  }
  Request* request = find(job);
  if (!request) return complain(job, "tokens of a request that was never admitted");
  const bool scored = wants_logprobs(job);
  if (scored && part.logprobs.size() != part.ids.size()) {
    return complain(job, "log-probabilities are missing");
  }
  const Shown& shown = request->shown[part.choice];
  for (size_t i = 0; i < part.ids.size(); ++i) {
    const size_t at = part.seq + i;
    if (at > shown.ids.size()) return;  // a gap, which was said
    if (at == shown.ids.size()) {
      const float* logprob = scored ? &part.logprobs[i] : nullptr;
      if (!follow(job, *request, part.choice, part.ids[i], logprob)) return;
    } else if (part.ids[i] != shown.ids[at]) {
      return complain(job, "choice " + std::to_string(part.choice) + ": token " +
                               std::to_string(at) + " is " + std::to_string(part.ids[i]) +
                               ", it was " + std::to_string(shown.ids[at]) + " before");
    }
  }
}

uint64_t StreamChecker::weights_of(uint64_t version) const {
  const uint64_t* weights = weights_.weights_of(version);
  return weights == nullptr ? ~uint64_t{0} : *weights;
}

bool StreamChecker::check_spans(const JobRecord& job, uint32_t choice) {
  const size_t tokens = job.done.choices[choice].ids.size();
  const WeightsSpan* before = nullptr;
  bool sound = true;
  for (const WeightsSpan& span : job.done.usage.weights) {
    if (span.choice != choice) continue;
    sound = sound && (before == nullptr
                          ? span.from_token == 0
                          : span.from_token > before->from_token && span.version > before->version);
    sound = sound && span.from_token < tokens;
    before = &span;
    if (weights_.weights_of(span.version) == nullptr) {
      complain(job, "the result names version " + std::to_string(span.version) +
                        " of the weights, which was never committed");
      return false;
    }
  }
  sound = sound && (before == nullptr) == (tokens == 0);
  if (!sound) complain(job, "the spans of versions do not cover the result");
  return sound;
}

void StreamChecker::finished(const JobRecord& job) {
  if (job.end != JobEnd::done) return;
  const Request* request = find(job);
  if (!request) return complain(job, "a result of a request that was never admitted");
  const size_t choices = job.done.choices.size();
  if (choices != job.submit.n) {
    return complain(job, "a result of " + std::to_string(choices) + " choices, " +
                             std::to_string(job.submit.n) + " were asked for");
  }
  size_t tokens = 0;
  for (uint32_t choice = 0; choice < choices; ++choice) {
    if (!check_spans(job, choice)) return;
    const ExpectedStream right = expected(job, *request, choice);
    check_choice(job, choice, right);
    tokens += right.ids.size();
    const bool scored = choice == 0 && job.submit.sampling.prompt_logprobs >= 0;
    if (scored && job.done.prompt_logprobs != right.prompt_logprobs) {
      complain(job, "the prompt's log-probabilities are wrong");
    }
  }
  if (job.done.usage.completion_tokens != tokens) {
    complain(job, "usage counts " + std::to_string(job.done.usage.completion_tokens) +
                      " tokens, the client got " + std::to_string(tokens));
  }
}

ExpectedStream StreamChecker::expected(const JobRecord& job, const Request& request,
                                       uint32_t choice) const {
  const Usage& usage = job.done.usage;
  const WeightsOfToken weights = [&](uint32_t token) {
    uint64_t version = usage.weights_version;
    for (const WeightsSpan& span : usage.weights) {
      if (span.choice == choice && span.from_token <= token) version = span.version;
    }
    return weights_of(version);
  };
  return expect_stream(rules_, job.submit, request.prompt, request.seed, choice, weights,
                       weights_of(usage.prompt_weights));
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
