#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cli/command.h"
#include "runtime/base/limits.h"
#include "runtime/base/result.h"
#include "runtime/layout/geometry.h"

namespace baton {

// What `baton serve` was asked for, checked and in the units of the program. Plain data.
struct ServeOptions {
  std::string model_path;
  std::string served_model_name;  // empty: the file's own name
  std::string client_endpoint;
  std::string ready_file;
  int64_t prefill_ranks = 0;  // 0: half of the engine ranks
  int64_t decode_ranks = 0;   // 0: the rest
  uint32_t threads = 0;       // 0: the cores of this rank's share of the machine
  uint32_t context_max = 0;   // 0: the model's
  uint32_t block_tokens = 16;
  uint64_t kv_cache_bytes = 0;     // 0: by the machine
  bool exact_activations = false;  // f32 activations in place of int8
  KvDtype kv_dtype = KvDtype::bf16;
  std::vector<uint32_t> prefill_lengths;  // empty: powers of two from 64 up
  uint32_t min_decode_steps = 1;          // steps from one look at what was decoded to the next
  uint32_t catch_up_tokens = 64;          // of a decode step, for what is known already
  int64_t step_us_min = 0;                // a step takes at least so long
  uint64_t seed = 0;                      // of the process's random numbers; 0: from the system
  bool insecure = false;                  // clients may come from other hosts without CURVE
  std::string log_level;
  bool log_json = false;
  Limits limits;
};

// The options as they are on the command line, and their reading.
class ServeFlags {
 public:
  ServeFlags();
  // As Command::parse; on success fills `options`. Errors have been printed.
  std::optional<int> parse(int argc, char** argv, ServeOptions& options);

 private:
  Result<void> check_numbers() const;
  Result<void> read(ServeOptions& options) const;

  cli::Command command_;
  std::string model_, served_name_, endpoint_ = "tcp://127.0.0.1:5757", ready_file_;
  std::string activations_ = "auto", kv_dtype_ = "auto", kv_memory_ = "auto";
  std::string prefill_lengths_ = "auto", log_level_ = "info", log_format_ = "text";
  int64_t prefill_ranks_ = 0, decode_ranks_ = 0, threads_ = 0, context_ = 0, block_size_ = 16;
  int64_t min_decode_steps_ = 1, catch_up_tokens_ = 64;
  int64_t slots_ = 32, step_tokens_ = 2048, prompts_per_pack_ = 16, queue_ = 1024, seed_ = 0;
  int64_t min_step_us_ = 0;
  double drain_seconds_ = 30;
  bool insecure_ = false;
};

// "512MiB", "2G", "1048576" in bytes; binary units. 0 for anything else.
uint64_t parse_bytes(const std::string& text);

}  // namespace baton
