#pragma once

#include <set>

#include "launch/sim/findings.h"
#include "launch/sim/sim_cluster.h"

namespace baton {

// Queues, ledgers and pools never exceed their limits. The harness shows it every message, and has
// it look now and then.
class LimitChecker {
 public:
  LimitChecker(const SimCluster& cluster, Findings& findings)
      : cluster_(cluster), findings_(findings) {}

  void posted(const Mail& mail);
  void delivered(const Mail& mail);
  void look();

 private:
  void at_most(const std::string& what, uint64_t value, uint64_t limit);

  const SimCluster& cluster_;
  Findings& findings_;
  // Admitted and never placed so far. Retries wait beside them, beyond the limit of the queue.
  std::set<RequestId> fresh_;
};

}  // namespace baton
