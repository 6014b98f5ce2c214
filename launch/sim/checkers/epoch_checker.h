#pragma once

#include <map>
#include <set>

#include "actors/protocol/gateway.h"
#include "launch/sim/findings.h"

namespace baton {

// A stale epoch never changes a stream (promise 17): what the gateway sends to a client must have
// arrived under the epoch that was current at that moment, whatever the tokens are. Keeps its own,
// most generous model of the commit point, from the mail that reaches the gateway.
class EpochChecker {
 public:
  explicit EpochChecker(Findings& findings) : findings_(findings) {}

  // Every message that is about to be handled.
  void delivered(const Mail& mail);
  // What the gateway sends to a client.
  void sent(const Mail& mail);
  uint64_t stale() const { return stale_; }

 private:
  struct Choice {
    uint32_t frontier = 0;  // tokens that may be committed
    std::map<Epoch, std::set<uint32_t>> seqs;
  };
  struct Request {
    Epoch epoch;
    std::map<uint32_t, Choice> choices;
  };
  void raise(Request& request, Epoch epoch);
  void take(const Tokens& tokens);
  static void move_on(Epoch epoch, Choice& choice);

  Findings& findings_;
  std::map<RequestId, Request> requests_;
  uint64_t stale_ = 0;
};

}  // namespace baton
