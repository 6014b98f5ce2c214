#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/base/time.h"

namespace baton {

// This process as a rank of an MPI job. One per process; main makes it, exchanges what ranks must
// know of each other, hands it to a mover and leaves through it. No collective runs after start-up:
// they cannot be abandoned when a rank dies. MPI is initialised SERIALIZED, and errors are
// returned.
class MpiWorld {
 public:
  struct Options {
    // A rank that never arrives would block the others for ever: past this, the process exits with
    // status 75 and a sentence.
    Micros start_within_us = 60 * kSecond;
  };

  // True when mpirun (or srun with PMIx) started this process.
  static bool launched();
  // Waits for all ranks of the job.
  static Result<std::unique_ptr<MpiWorld>> start(const Options& options);
  // CHECKs nothing and ends nothing: a process leaves by leave().
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  uint32_t rank() const;
  uint32_t size() const;
  uint32_t local_rank() const;  // among the ranks of this host
  uint32_t local_size() const;
  const std::string& host() const;
  // True only if that rank's process is known to be over: it ran on this host and is not there any
  // more. A stopped one is not over. thread-safe
  bool process_is_over(uint32_t rank) const;

  // Everybody's blob, by rank (an endpoint, an incarnation, a hash). Collective: all ranks call it
  // equally often, during start-up only, before any mover exists.
  std::vector<std::string> all_gather(const std::string& blob);

  // Ends the process without running destructors. Finalizes MPI if all peers are known to live, and
  // exits anyway when that takes longer than `finalize_within_us`: a dead peer makes it hang. 0:
  // does not try. No mover may exist any more.
  [[noreturn]] void leave(int status, Micros finalize_within_us);

 private:
  friend struct MpiAccess;
  struct Impl;
  explicit MpiWorld(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
