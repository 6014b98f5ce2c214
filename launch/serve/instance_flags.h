#pragma once

#include <string>

#include "launch/cli/command.h"
#include "launch/serve/serve_options.h"
#include "runtime/base/result.h"

namespace baton {

// The options of `baton serve` that say of what shape the instances are: --cluster, or degrees,
// block sizes and KV dtypes for all, for the prefill side, for the decode side; and how KV is
// handed over between them.
class InstanceFlags {
 public:
  void enroll(cli::Command& command);
  // Fills `options.defaults`, `options.instances` and the limits of a hand-off. `common` holds what
  // is the same on both sides.
  Result<void> read(const cli::Command& command, const InstanceSpec& common,
                    ServeOptions& options) const;

 private:
  struct Side {
    int64_t tensor_parallel = 0, pipeline_parallel = 0, block_size = 0;
    std::string kv_dtype = "auto";
  };
  Result<void> read_file(const cli::Command& command, ServeOptions& options) const;
  Result<void> read_side(const char* side_name, const Side& side, InstanceSpec& spec) const;

  std::string cluster_file_;
  int64_t tensor_parallel_ = 1, pipeline_parallel_ = 1, kv_layer_groups_ = 1;
  bool no_kv_digests_ = false;
  Side prefill_;
  Side decode_;
};

}  // namespace baton
