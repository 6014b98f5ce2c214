#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "actors/protocol/gateway.h"
#include "actors/protocol/scheduler.h"
#include "launch/sim/findings.h"
#include "runtime/actor/message.h"

namespace baton {

// What prefix caches claim to have of a prompt is never more than what somebody of the same tenant
// has had computed before, and never all of it. The harness shows it what actors post, and what the
// scheduler admits.
class CacheChecker {
 public:
  explicit CacheChecker(Findings& findings) : findings_(findings) {}

  void admitted(RequestId request, const Admit& admit);
  void posted(const Mail& mail);

 private:
  struct Sequence {
    std::string tenant;
    std::vector<TokenId> prompt;
    std::map<uint32_t, std::vector<TokenId>> output;  // by choice, as far as it is known

    // The whole of each choice; of none, the prompt.
    std::vector<std::vector<TokenId>> wholes() const;
  };
  void check(RequestId request, Epoch epoch, uint64_t hit, const std::string& where);
  void learn(const TokenEntry& entry);

  Findings& findings_;
  std::map<RequestId, Sequence> sequences_;
};

}  // namespace baton
