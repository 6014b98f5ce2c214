#pragma once

#include <string>
#include <vector>

#include "launch/sim/sim_cluster.h"

namespace baton {

// What is not at rest yet: ledger rows, leases, blocks, slots, streams, transfers. Empty when every
// pool is full and every ledger is empty (promise 10).
std::vector<std::string> unrest(const SimCluster& cluster);

}  // namespace baton
