#pragma once

#include <map>

#include "launch/sim/checkers/weights_checker.h"
#include "launch/sim/expected_stream.h"
#include "launch/sim/findings.h"
#include "launch/sim/sim_client.h"

namespace baton {

// Every stream is free of gaps and repeats, in order, and equals the fake model's pure function of
// the prompt and of the versions of the weights that its result names: ids, log-probabilities, text
// and reason to end. The harness shows it every stretch
// that a client takes in, every request that is admitted, and in the end every job.
class StreamChecker {
 public:
  StreamChecker(Findings& findings, ExpectedRules rules, const WeightsChecker& weights)
      : findings_(findings), rules_(rules), weights_(weights) {}

  void admitted(RequestId request, const Admit& admit);
  void stretch(const JobRecord& job, const ClientTokens& part);
  void finished(const JobRecord& job);

 private:
  // What the stream of a choice has shown so far.
  struct Shown {
    std::vector<TokenId> ids;
    std::map<uint64_t, FakeState> states;  // behind `ids`, by weights
  };
  struct Request {
    std::vector<TokenId> prompt;
    uint64_t seed = 0;
    bool compared = false;            // with what its client had asked for
    std::map<uint32_t, Shown> shown;  // by choice
  };
  // Null until the request is known.
  Request* find(const JobRecord& job);
  // The next token of a stream; false (and said so) if no committed version yields it.
  bool follow(const JobRecord& job, Request& request, uint32_t choice, TokenId token,
              const float* logprob);
  void complain(const JobRecord& job, const std::string& text);
  // What the result says of versions: false (and said so) if that cannot be.
  bool check_spans(const JobRecord& job, uint32_t choice);
  // The stream of a choice, on the versions that the result names.
  ExpectedStream expected(const JobRecord& job, const Request& request, uint32_t choice) const;
  uint64_t weights_of(uint64_t version) const;
  void check_choice(const JobRecord& job, uint32_t choice, const ExpectedStream& expected);
  bool wants_logprobs(const JobRecord& job) const { return job.submit.sampling.top_logprobs >= 0; }

  Findings& findings_;
  const ExpectedRules rules_;
  const WeightsChecker& weights_;
  std::map<RequestId, Request> requests_;
};

}  // namespace baton
