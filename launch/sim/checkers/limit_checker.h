#pragma once

#include "launch/sim/findings.h"
#include "launch/sim/sim_cluster.h"

namespace baton {

// Queues, ledgers and pools never exceed their limits, at the moment of the call.
void check_limits(const SimCluster& cluster, Findings& findings);

}  // namespace baton
