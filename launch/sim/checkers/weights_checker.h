#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch/sim/findings.h"
#include "launch/sim/sim_cluster.h"

namespace baton {

// Weights are committed when every worker that takes part has them, and not before; a worker has at
// most two sets; and which number stands for which weights never changes once it was committed. The
// harness shows it every message that is posted. Others ask it what a version is.
class WeightsChecker {
 public:
  WeightsChecker(const SimCluster& cluster, Findings& findings);

  void posted(const Mail& mail);
  // The fake model's weights of a version; null if it was never committed.
  const uint64_t* weights_of(uint64_t version) const;
  // All that were committed so far.
  const std::map<uint64_t, uint64_t>& committed() const { return committed_; }

 private:
  void commit(const Mail& mail);
  void check_members(uint64_t version);

  const SimCluster& cluster_;
  Findings& findings_;
  std::map<uint64_t, uint64_t> committed_;  // version -> weights
};

}  // namespace baton
