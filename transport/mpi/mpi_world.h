#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/result.h"

namespace baton {

// True if mpirun (or another PMIx launcher) started this process. Reads the environment only.
bool started_by_mpi();

// MPI from its initialisation to this process's end: rank, size, and the exchanges at start-up, the
// only collectives that Baton runs. After the last exchange one thread alone may call MPI (the
// mover's data thread). MPI is never finalised: with a dead peer that hangs.
class MpiWorld {
 public:
  // Fails with unavailable when MPI cannot be initialised or lacks the thread level.
  static Result<MpiWorld> init();

  uint32_t rank() const { return rank_; }
  uint32_t size() const { return size_; }

  // Gives every rank the bytes of every rank, in rank order. All ranks must call it; start-up only.
  Result<std::vector<std::string>> exchange(const std::string& own) const;

 private:
  uint32_t rank_ = 0;
  uint32_t size_ = 1;
};

// Ends the process without MPI_Finalize and without destructors; what was written to stdout and
// stderr is flushed first.
[[noreturn]] void leave_mpi(int status);

}  // namespace baton
