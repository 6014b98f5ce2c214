#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launch/serve/instance_spec.h"
#include "runtime/base/result.h"

namespace baton {

// What a cluster file says: instances, prefill before decode, each in the order of the file; ranks
// are not given out yet.
struct ClusterFile {
  std::vector<InstanceSpec> instances;
  HandoffTerms handoff;
};

// Reads a cluster file (TOML): what is the same for all on top, then one table per shape:
//
//   kv-layer-groups = 2
//   kv-digests = false
//   [[prefill]]                  [[decode]]
//   instances = 2                tensor-parallel = 3
//   tensor-parallel = 2          kv-dtype = "bf16"
//   ...
//
// Strict: an unknown key, a wrong type or an impossible value is invalid_argument with file, line,
// what was found, what was expected.
Result<ClusterFile> read_cluster_file(const std::string& path, const InstanceDefaults& defaults);
// `name` stands for the file in errors.
Result<ClusterFile> parse_cluster_file(std::string_view text, const std::string& name,
                                       const InstanceDefaults& defaults);

// "bf16", "f16", "f32"; false for anything else.
bool parse_kv_dtype(const std::string& text, KvDtype& dtype);

}  // namespace baton
