#include "tests/bench/probe.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/bench/probe_loops.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<std::byte, Free>;

// In huge pages where the system has them, as the engine's memory is.
Bytes touched(std::size_t bytes) {
  constexpr std::size_t kHugePage = 2 << 20;
  Bytes p(static_cast<std::byte*>(std::aligned_alloc(kHugePage, bytes)));
  madvise(p.get(), bytes, MADV_HUGEPAGE);
  std::memset(p.get(), 1, bytes);
  return p;
}

}  // namespace

const ProbeLoops& probe_loops(Isa isa) {
  static constexpr ProbeLoops kScalar{scalar::read, scalar::int8, scalar::fma};
  static constexpr ProbeLoops kAvx2{avx2::read, avx2::int8, avx2::fma};
  static constexpr ProbeLoops kAvx512{avx512::read, avx512::int8, avx512::fma};
  switch (isa) {
    case Isa::scalar: return kScalar;
    case Isa::avx2: return kAvx2;
    case Isa::avx512:
    case Isa::amx: return kAvx512;  // VPDPBUSD: what prefill is measured against on both
  }
  return kScalar;
}

Limits probe(Team& team, Isa isa, bool quick) {
  const ProbeLoops& loops = probe_loops(isa);
  const int repeats = quick ? 3 : 7;
  const double seconds = quick ? 0.1 : 0.5;
  const auto threads = static_cast<std::size_t>(team.size());
  std::vector<float> sinks(threads * 16);
  std::vector<double> done(threads * 8);
  const auto rate = [&](auto&& work) {  // work(thread) returns what it did; sum per second
    const Timing t = measure(repeats, seconds, [&] {
      team.run([&](int thread, int) {
        const auto i = static_cast<std::size_t>(thread);
        done[i * 8] = work(thread, &sinks[i * 16]);
      });
    });
    double sum = 0;
    for (std::size_t i = 0; i < threads; ++i) sum += done[i * 8];
    return sum / t.best_s / 1e9;
  };
  Limits limits;
  const std::size_t rounds = 100'000;  // well below a millisecond: some repeat runs undisturbed
  limits.int8_gops = rate([&](int, float* sink) { return loops.int8(rounds, sink); });
  limits.fma_gflops = rate([&](int, float* sink) { return loops.fma(rounds, sink); });
  const std::size_t bytes = std::size_t{quick ? 512u : 1024u} << 20;
  const Bytes source = touched(bytes);
  const Bytes target = touched(bytes / 4);
  limits.read_gbs = rate([&](int thread, float* sink) {
    const std::size_t part = bytes / threads / 4096 * 4096;
    return loops.read(source.get() + static_cast<std::size_t>(thread) * part, part, sink);
  });
  limits.memcpy_gbs = rate([&](int thread, float*) {
    const std::size_t part = bytes / 4 / threads / 4096 * 4096;
    const std::size_t at = static_cast<std::size_t>(thread) * part;
    std::memcpy(target.get() + at, source.get() + at, part);
    return static_cast<double>(part);
  });
  return limits;
}

}  // namespace baton::bench
