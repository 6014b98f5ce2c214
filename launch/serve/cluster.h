#pragma once

#include "launch/serve/serve_options.h"

namespace baton {

// True if this process was started by mpirun (or srun) as one rank of several.
bool under_mpirun();

// One rank of a cluster, from MPI_Init to its end. Does not return: leaves by a path that cannot
// hang on a dead peer. `spent` are the seconds that the process has already used.
[[noreturn]] int serve_rank(const ServeOptions& options, double spent);

}  // namespace baton
