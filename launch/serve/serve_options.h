#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/prefill/packer.h"
#include "actors/scheduler/local_prefill.h"
#include "launch/cli/command.h"
#include "launch/serve/instance_spec.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"

namespace baton {

// What `baton serve` was asked for, checked and in the units of the program. Plain data.
struct ServeOptions {
  std::string model_path;
  std::string served_model_name;  // empty: the file's own name
  std::string client_endpoint;
  std::string ready_file;
  int64_t prefill_ranks = 0;  // 0: half of the engine ranks
  int64_t decode_ranks = 0;   // 0: the rest
  InstanceDefaults defaults;
  std::vector<InstanceSpec> instances;    // of a cluster file, without ranks; otherwise empty
  uint32_t context_max = 0;               // 0: the model's
  bool exact_activations = false;         // f32 activations in place of int8
  std::vector<uint32_t> prefill_lengths;  // empty: powers of two from 64 up
  PackPolicy pack_policy = PackPolicy::buckets;
  uint32_t prefill_chunk = 0;  // tokens of one prompt in one step; 0: whole prompts where they fit
  bool prefix_cache = true;
  LocalPrefillPolicy local_prefill;
  uint32_t min_decode_steps = 1;  // steps from one look at what was decoded to the next
  uint32_t catch_up_tokens = 64;  // of a decode step, for what is known already
  int64_t step_us_min = 0;        // a step takes at least so long
  uint64_t seed = 0;              // of the process's random numbers; 0: from the system
  bool insecure = false;          // clients may come from other hosts without CURVE
  bool allow_admin = false;       // calls that change the server too, from other hosts
  std::string log_level;
  bool log_json = false;
  Limits limits;
};

class InstanceFlags;

// The options as they are on the command line, and their reading.
class ServeFlags {
 public:
  ServeFlags();
  ~ServeFlags();
  // As Command::parse; on success fills `options`. Errors have been printed.
  std::optional<int> parse(int argc, char** argv, ServeOptions& options);

 private:
  Result<void> check_numbers() const;
  Result<void> read(ServeOptions& options) const;
  Result<void> read_policies(ServeOptions& options) const;

  cli::Command command_;
  std::unique_ptr<InstanceFlags> instances_;
  std::string model_, served_name_, endpoint_ = "tcp://127.0.0.1:5757", ready_file_;
  std::string activations_ = "auto", kv_dtype_ = "auto", kv_memory_ = "auto";
  std::string prefill_lengths_ = "auto", pack_policy_ = "buckets", local_prefill_ = "auto";
  std::string log_level_ = "info", log_format_ = "text";
  int64_t prefill_ranks_ = 0, decode_ranks_ = 0, threads_ = 0, context_ = 0, block_size_ = 16;
  int64_t min_decode_steps_ = 1, catch_up_tokens_ = 64;
  int64_t slots_ = 32, step_tokens_ = 2048, prompts_per_pack_ = 16, queue_ = 1024, seed_ = 0;
  int64_t min_step_us_ = 0, prefill_chunk_ = 0;
  double drain_seconds_ = 30, pack_age_ms_ = 20;
  bool insecure_ = false, no_prefix_cache_ = false, allow_admin_ = false;
};

// "512MiB", "2G", "1048576" in bytes; binary units. 0 for anything else.
uint64_t parse_bytes(const std::string& text);

}  // namespace baton
