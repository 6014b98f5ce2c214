#include "transport/mpi/mpi_world.h"

#include <mpi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace baton {
namespace {

Error mpi_error(const char* call, int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {ErrorCode::unavailable, std::string(call) + " failed: " + text};
}

}  // namespace

bool started_by_mpi() {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name)) return true;
  }
  return false;
}

Result<MpiWorld> MpiWorld::init() {
  int provided = MPI_THREAD_SINGLE;
  const int code = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (code != MPI_SUCCESS) return mpi_error("MPI_Init_thread", code);
  if (provided < MPI_THREAD_SERIALIZED) {
    return Error{ErrorCode::unavailable,
                 "this MPI lets only its first thread call it; expected MPI_THREAD_SERIALIZED"};
  }
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  int rank = 0;
  int size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MpiWorld world;
  world.rank_ = static_cast<uint32_t>(rank);
  world.size_ = static_cast<uint32_t>(size);
  return world;
}

Result<std::vector<std::string>> MpiWorld::exchange(const std::string& own) const {
  const int length = static_cast<int>(own.size());
  std::vector<int> lengths(size_);
  int code = MPI_Allgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD);
  if (code != MPI_SUCCESS) return mpi_error("MPI_Allgather", code);
  std::vector<int> offsets(size_);
  int total = 0;
  for (uint32_t r = 0; r < size_; ++r) {
    offsets[r] = total;
    total += lengths[r];
  }
  std::string all(static_cast<size_t>(total), '\0');
  code = MPI_Allgatherv(own.data(), length, MPI_BYTE, all.data(), lengths.data(), offsets.data(),
                        MPI_BYTE, MPI_COMM_WORLD);
  if (code != MPI_SUCCESS) return mpi_error("MPI_Allgatherv", code);
  std::vector<std::string> parts;
  for (uint32_t r = 0; r < size_; ++r) {
    parts.push_back(all.substr(static_cast<size_t>(offsets[r]), static_cast<size_t>(lengths[r])));
  }
  return parts;
}

void leave_mpi(int status) {
  std::fflush(stdout);
  std::fflush(stderr);
  _exit(status);
}

}  // namespace baton
