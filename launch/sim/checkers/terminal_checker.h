#pragma once

#include "launch/sim/findings.h"
#include "launch/sim/sim_client.h"

namespace baton {

// Every job has exactly one terminal event, and one that its history explains.
struct TerminalContext {
  bool client_left = false;  // it was not there to hear of the end
  bool calm = false;         // no worker was lost
  bool aborts = false;       // updates of the weights may have ended it
};
void check_terminal(const JobRecord& job, const TerminalContext& context, Findings& findings);

}  // namespace baton
