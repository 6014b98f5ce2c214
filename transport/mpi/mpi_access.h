#pragma once

#include <mpi.h>

#include <string>

#include "transport/mpi/mpi_world.h"

namespace baton {

// The communicator of the KV data plane. Only .cpp files of this folder include this header.
struct MpiAccess {
  static MPI_Comm kv_communicator(MpiWorld& world);
  static int tag_max(MpiWorld& world);
};

// MPI's own words for an error code.
std::string mpi_error_text(int code);

}  // namespace baton
