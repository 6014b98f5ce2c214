#pragma once

#include <cstdint>
#include <string>

#include "actors/protocol/worker.h"
#include "runtime/layout/geometry.h"

namespace baton {

// One engine instance of a cluster: tensor_parallel x pipeline_parallel ranks, the first of which
// hosts its actor. Plain data.
struct InstanceSpec {
  Role role = Role::prefill;
  uint32_t first_rank = 0;
  uint32_t tensor_parallel = 1;
  uint32_t pipeline_parallel = 1;
  uint32_t block_tokens = 16;
  KvDtype kv_dtype = KvDtype::bf16;
  uint64_t kv_cache_bytes = 0;  // of a rank; 0: by the machine
  uint32_t threads = 0;         // of a rank; 0: its share of the cores

  uint32_t ranks() const { return tensor_parallel * pipeline_parallel; }
  bool holds(uint32_t rank) const { return rank >= first_rank && rank - first_rank < ranks(); }
  // "rank 3" or "ranks 3-6"
  std::string ranks_text() const;
  // "tp 2 x pp 1"
  std::string degrees_text() const;
};

// How the instances of a cluster hand KV over to each other.
struct HandoffTerms {
  uint32_t layer_groups = 1;
  bool digests = true;
};
constexpr uint32_t kLayerGroupsMax = 1024;

// The shape of instances whose file or command line says no more, and what is the same for all.
struct InstanceDefaults {
  InstanceSpec prefill{Role::prefill};
  InstanceSpec decode{Role::decode};
  HandoffTerms handoff;
};

}  // namespace baton
