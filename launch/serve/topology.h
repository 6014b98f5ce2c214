#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/worker.h"
#include "runtime/base/result.h"

namespace baton {

// Which rank does what. With one rank it does everything; otherwise rank 0 is the control rank,
// then come the prefill ranks, then the decode ranks.
struct Topology {
  uint32_t ranks = 1;
  uint32_t prefill_ranks = 1;
  uint32_t decode_ranks = 1;

  bool alone() const { return ranks == 1; }
  bool control(uint32_t rank) const { return rank == 0; }
  // Roles of the engines that a rank hosts.
  std::vector<Role> roles(uint32_t rank) const;
  std::string role_text(uint32_t rank) const;  // "control", "prefill", "decode", "all"
};

// Divides `ranks` (of mpirun) into roles; 0 asks for the default. An impossible division is refused
// with both numbers.
Result<Topology> divide_ranks(uint32_t ranks, int64_t prefill_ranks, int64_t decode_ranks);

// Logical cores that this process may use, and how people write them ("0-1,4").
std::vector<uint32_t> allowed_cores();
std::string cores_text(const std::vector<uint32_t>& cores);
std::string host_name();
// Bytes of the machine's memory.
uint64_t machine_memory();

}  // namespace baton
