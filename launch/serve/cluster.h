#pragma once

#include "launch/serve/report.h"
#include "launch/serve/serve_options.h"

namespace baton {

// True if this process was started by mpirun (or srun) as one rank of several.
bool under_mpirun();

// One rank of a cluster, from MPI_Init to its end: leaves by a path that cannot hang on a dead
// peer.
[[noreturn]] void serve_rank(const ServeOptions& options, const StartClock& clock);

}  // namespace baton
