#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "actors/scheduler/worker_key.h"
#include "runtime/layout/prefix_hash.h"

namespace baton {

// Which instances were given prompts that begin alike: a guess at what their prefix caches have,
// from what was assigned, without asking them. Bounded: what was not used for long is forgotten.
// Pure; owned by the scheduler's sites, its thread only.
class PrefixDirectory {
 public:
  // Tokens of one block of the names that it goes by, whatever the block size of an instance.
  static constexpr uint32_t kBlockTokens = 64;

  explicit PrefixDirectory(size_t names_max) : half_(names_max / 2) {}

  void note(std::span<const PrefixHash> names, WorkerKey instance);
  void forget(WorkerKey instance);

  struct Known {
    WorkerKey instance;
    uint64_t tokens = 0;  // of the prompt's beginning
  };
  // Instances that match, longest beginning first, at most `count`.
  std::vector<Known> find(std::span<const PrefixHash> names, size_t count,
                          const std::function<bool(WorkerKey)>& matches) const;
  size_t size() const { return young_.size() + old_.size(); }

 private:
  static constexpr size_t kInstancesMax = 8;  // remembered for one name, the latest of them
  using Names = std::map<PrefixHash, std::vector<WorkerKey>>;
  const std::vector<WorkerKey>* at(const PrefixHash& name) const;

  // What is in use moves to the young half; when that is full, the old one is forgotten.
  const size_t half_;
  Names young_;
  Names old_;
};

}  // namespace baton
