#include "launch/serve/instance_group.h"

#include "runtime/engine/mapped_memory.h"

namespace baton {
namespace {

// About 100 microseconds: several times what the ranks of a balanced step differ by.
constexpr int kSpins = 1 << 12;

Result<void> check_memory(const InstanceSpec& instance, uint64_t bytes) {
  const uint64_t available = memory_available_bytes();
  if (bytes <= available) return {};
  return Error{ErrorCode::unavailable,
               "the KV caches and buffers of " + instance.ranks_text() + " need " +
                   std::to_string(bytes >> 20) + " MiB, but only " +
                   std::to_string(available >> 20) +
                   " MiB are available: lower --kv-cache-memory or --max-num-batched-tokens"};
}

}  // namespace

Result<ShmGroupOptions> group_options(const OpenedModel& model, const InstanceSpec& instance,
                                      uint32_t rank, const CpuEngineOptions& engine, bool spin) {
  const PartOf of = part_of(instance, rank);
  const Result<uint64_t> bytes = CpuEngine::window_bytes(model.config, engine, of);
  if (!bytes.ok()) return bytes.error();
  if (rank == instance.first_rank) {
    if (Result<void> memory = check_memory(instance, *bytes); !memory.ok()) return memory.error();
  }
  ShmGroupOptions options;
  options.size = instance.ranks();
  options.index = of.rank;
  options.parts = instance.pipeline_parallel;
  options.window_bytes = *bytes;
  options.spins = spin ? kSpins : 0;
  for (uint32_t i = 0; i < instance.ranks(); ++i) {
    options.names.push_back("rank " + std::to_string(instance.first_rank + i));
  }
  return options;
}

}  // namespace baton
