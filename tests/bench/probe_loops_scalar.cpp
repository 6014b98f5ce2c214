#include "tests/bench/probe_loops.h"

namespace baton::bench::scalar {

double read(const void* data, std::size_t bytes, float* sink) {
  const auto* p = static_cast<const unsigned long*>(data);
  unsigned long sum[4] = {};
  for (std::size_t i = 0; i + 4 <= bytes / sizeof(unsigned long); i += 4) {
    for (std::size_t j = 0; j < 4; ++j) sum[j] += p[i + j];
  }
  *sink = static_cast<float>(sum[0] + sum[1] + sum[2] + sum[3]);
  return static_cast<double>(bytes);
}

double int8(std::size_t rounds, float* sink) {
  int acc[8] = {};
  for (std::size_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < 8; ++i) acc[i] += static_cast<int>(r & 15) * (i - 3);
    asm volatile("" : "+m"(acc));
  }
  *sink = static_cast<float>(acc[0] + acc[7]);
  return static_cast<double>(rounds) * 8 * 2;
}

double fma(std::size_t rounds, float* sink) {
  float acc[8] = {};
  for (std::size_t r = 0; r < rounds; ++r) {
    for (int i = 0; i < 8; ++i) acc[i] = __builtin_fmaf(acc[i], 0.5f, 1.0f);
    asm volatile("" : "+m"(acc));
  }
  *sink = acc[0] + acc[7];
  return static_cast<double>(rounds) * 8 * 2;
}

}  // namespace baton::bench::scalar
