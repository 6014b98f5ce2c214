#pragma once

#include <cstddef>

#include "kernels/isa.h"
#include "kernels/team.h"

namespace baton::bench {

// What the machine can do with a number of threads, measured in the same run as everything that is
// compared with it.
struct Limits {
  double read_gbs = 0;    // from memory, larger than any cache
  double memcpy_gbs = 0;  // payload
  double int8_gops = 0;   // of the instruction mix of the int8 kernels, 2 per multiply-add
  double fma_gflops = 0;  // f32, 2 per multiply-add
};

Limits probe(Team& team, Isa isa, bool quick);

// The loops behind it, per instruction set: each runs `rounds` times and returns the operations
// (bytes) done. `sink` keeps the compiler from dropping them.
struct ProbeLoops {
  double (*read)(const void* data, std::size_t bytes, float* sink);
  double (*int8)(std::size_t rounds, float* sink);
  double (*fma)(std::size_t rounds, float* sink);
};
const ProbeLoops& probe_loops(Isa isa);

}  // namespace baton::bench
