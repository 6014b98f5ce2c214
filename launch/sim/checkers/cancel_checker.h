#pragma once

#include <map>

#include "actors/protocol/decode.h"
#include "launch/sim/findings.h"
#include "runtime/sim/world.h"

namespace baton {

// What a client gave up frees its slot and blocks at once (promise 9): within a second, or two
// steps, of the gateway's Cancel, no decode actor holds a lease of the request. Only where nothing
// is wrong with the cluster. Looks at what actors post.
class CancelChecker {
 public:
  CancelChecker(World& world, Micros step_us_max, Findings& findings)
      : world_(world), within_(kSecond + 2 * step_us_max), findings_(findings) {}

  void posted(const Mail& mail);

 private:
  World& world_;
  const Micros within_;
  Findings& findings_;
  std::map<RequestId, uint32_t> leases_;  // slots held, by request
};

}  // namespace baton
