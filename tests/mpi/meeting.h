#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "transport/mpi/mpi_world.h"

namespace baton::test {

// Memory that all ranks of one host share, so that a scenario can be directed without MPI, which
// only the mover may call.
class Meeting {
 public:
  explicit Meeting(MpiWorld& world);

  // Waits until every one of `ranks` ranks has come to point number `point`.
  void barrier(uint32_t point, uint32_t ranks);
  // A number that any rank may set and read.
  std::atomic<uint64_t>& cell(uint32_t index);

 private:
  std::atomic<uint64_t>* cells_;
};

}  // namespace baton::test
