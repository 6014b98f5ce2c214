#pragma once

#include <cstddef>

// The probes of each instruction set; see probe.h.
#define BATON_PROBES(isa)                                        \
  namespace baton::bench::isa {                                  \
  double read(const void* data, std::size_t bytes, float* sink); \
  double int8(std::size_t rounds, float* sink);                  \
  double fma(std::size_t rounds, float* sink);                   \
  }
BATON_PROBES(scalar)
BATON_PROBES(avx2)
BATON_PROBES(avx512)
#undef BATON_PROBES
