#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/serve/instance_spec.h"
#include "launch/serve/serve_options.h"
#include "runtime/base/result.h"

namespace baton {

// Which rank does what. With one rank it does everything; otherwise rank 0 is the control rank,
// then come the ranks of the prefill instances, then those of the decode instances.
struct Topology {
  uint32_t ranks = 1;
  std::vector<InstanceSpec> instances;

  bool alone() const { return ranks == 1; }
  bool control(uint32_t rank) const { return rank == 0; }
  // Instances whose actor a rank hosts: both when alone, one on its first rank, else none.
  std::vector<InstanceSpec> led_by(uint32_t rank) const;
  // The instance that a rank is part of; null for the control rank of several.
  const InstanceSpec* instance_of(uint32_t rank) const;
  size_t count(Role role) const;
  std::string role_text(uint32_t rank) const;  // "control", "prefill", "decode part 2 of 4", "all"
};

// Divides `ranks` (of mpirun) into instances: those of the cluster file, or as many of the default
// shapes as fit. An impossible division is refused with both numbers.
Result<Topology> divide_ranks(uint32_t ranks, const ServeOptions& options);

// Fails unless the ranks of each instance share a host. `hosts`: by rank.
Result<void> check_hosts(const Topology& topology, const std::vector<std::string>& hosts);

// Logical cores that this process may use, and how people write them ("0-1,4").
std::vector<uint32_t> allowed_cores();
std::string cores_text(const std::vector<uint32_t>& cores);
std::string host_name();
// Bytes of the machine's memory.
uint64_t machine_memory();

}  // namespace baton
