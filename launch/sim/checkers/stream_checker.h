#pragma once

#include <map>

#include "launch/sim/expected_stream.h"
#include "launch/sim/findings.h"
#include "launch/sim/sim_client.h"

namespace baton {

// Every stream is free of gaps and repeats, in order, and equals the fake model's pure function of
// the prompt: ids, log-probabilities, text and reason to end. The harness shows it every stretch
// that a client takes in, every request that is admitted, and in the end every job.
class StreamChecker {
 public:
  StreamChecker(Findings& findings, ExpectedRules rules) : findings_(findings), rules_(rules) {}

  void admitted(RequestId request, const Admit& admit);
  void stretch(const JobRecord& job, const ClientTokens& part);
  void finished(const JobRecord& job);

 private:
  struct Request {
    std::vector<TokenId> prompt;
    uint64_t seed = 0;
  };
  using Expected = std::vector<ExpectedStream>;  // by choice
  // Null until the request is known.
  const Expected* expected(const JobRecord& job);
  void complain(const JobRecord& job, const std::string& text);
  void check_result(const JobRecord& job, const Expected& expected);
  void check_choice(const JobRecord& job, uint32_t choice, const ExpectedStream& expected);
  bool wants_logprobs(const JobRecord& job) const { return job.submit.sampling.top_logprobs >= 0; }

  Findings& findings_;
  const ExpectedRules rules_;
  std::map<RequestId, Request> requests_;
  std::map<RequestId, Expected> expected_;
};

}  // namespace baton
