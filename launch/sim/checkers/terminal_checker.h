#pragma once

#include "launch/sim/findings.h"
#include "launch/sim/sim_client.h"

namespace baton {

// Every job has exactly one terminal event, and one that its history explains.
void check_terminal(const JobRecord& job, bool client_left, Findings& findings);

}  // namespace baton
