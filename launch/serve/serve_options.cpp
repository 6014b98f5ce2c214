#include "launch/serve/serve_options.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <tuple>

namespace baton {
namespace {

Error usage_error(const std::string& text) {
  return {ErrorCode::invalid_argument, text};
}

Result<std::vector<uint32_t>> parse_lengths(const std::string& text) {
  std::vector<uint32_t> lengths;
  if (text == "auto") return lengths;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string word = text.substr(at, end - at);
    char* rest = nullptr;
    const long value = std::strtol(word.c_str(), &rest, 10);
    if (word.empty() || *rest || value <= 0 || value > (1 << 24)) {
      return usage_error("--prefill-lengths is '" + text +
                         "'; expected 'auto' or lengths such as 64,256,1024");
    }
    if (!lengths.empty() && static_cast<uint32_t>(value) <= lengths.back()) {
      return usage_error("--prefill-lengths must ascend, got '" + text + "'");
    }
    lengths.push_back(static_cast<uint32_t>(value));
    at = end + 1;
  }
  return lengths;
}

Result<void> in_range(const char* name, int64_t value, int64_t min, int64_t max) {
  if (value >= min && value <= max) return {};
  return usage_error(std::string(name) + " is " + std::to_string(value) + "; expected " +
                     std::to_string(min) + " to " + std::to_string(max));
}

}  // namespace

uint64_t parse_bytes(const std::string& text) {
  char* rest = nullptr;
  const double value = std::strtod(text.c_str(), &rest);
  if (rest == text.c_str() || value <= 0) return 0;
  std::string unit;
  for (; *rest; ++rest) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(*rest)));
  if (unit.size() > 1 && unit.back() == 'b') unit.pop_back();
  if (unit.size() > 1 && unit.back() == 'i') unit.pop_back();
  double factor = 0;
  if (unit.empty() || unit == "b") factor = 1;
  if (unit == "k") factor = 1 << 10;
  if (unit == "m") factor = 1 << 20;
  if (unit == "g") factor = 1 << 30;
  return static_cast<uint64_t>(value * factor);
}

ServeFlags::ServeFlags()
    : command_(
          "serve",
          "Serve a model. Under mpirun, rank 0 is the control rank (scheduler and gateway) and "
          "each other rank runs one prefill or decode engine; alone, one process does it all") {
  command_.option("--model,-m", model_, "A GGUF file (architecture llama)");
  command_.option("--served-model-name", served_name_, "The name that clients see");
  command_.option("--client-endpoint", endpoint_,
                  "Where clients connect over ZeroMQ; port * takes a free one");
  command_.option("--prefill-ranks", prefill_ranks_, "Engine ranks that prefill; 0 = half of them");
  command_.option("--decode-ranks", decode_ranks_, "Engine ranks that decode; 0 = the rest");
  command_.option("--threads", threads_,
                  "Compute threads of this rank; 0 = its share of the cores");
  command_.option("--max-model-len", context_, "Positions of one sequence; 0 = the model's",
                  "context-length");
  command_.option("--max-num-seqs", slots_, "Decode slots of a decode rank");
  command_.option("--max-num-batched-tokens", step_tokens_, "Tokens of one engine step");
  command_.option("--max-prompts-per-pack", prompts_per_pack_, "Prompts of one packed prefill");
  command_.option("--min-decode-steps", min_decode_steps_,
                  "Decode steps between two looks for ended answers: fewer messages, some waste");
  command_.option("--catch-up-tokens", catch_up_tokens_,
                  "Known tokens that a decode step recomputes at most beside running answers");
  command_.option("--prefill-lengths", prefill_lengths_,
                  "Length classes of packed prefill: auto, or ascending lengths");
  command_.option("--block-size", block_size_, "Tokens of a KV block: 16, 32 or 64");
  command_.option("--kv-cache-memory", kv_memory_, "KV cache of a rank, such as 512MiB, or auto");
  command_.option("--kv-cache-dtype", kv_dtype_, "auto, bf16, f16 or f32");
  command_.option("--activations", activations_,
                  "auto (int8 for quantised weights) or f32 (the exact path)");
  command_.option("--max-queued", queue_, "Requests that may wait; beyond it they are refused");
  command_.option("--drain-timeout", drain_seconds_,
                  "Seconds to finish running requests at the end");
  command_.option("--ready-file", ready_file_, "Written when the server is ready");
  command_.option(
      "--min-step-us", min_step_us_,
      "Microseconds that a step takes at least: to try out what befalls running requests");
  command_.option("--seed", seed_, "Seed of the server's random numbers; 0 = from the system");
  command_.option("--log-level", log_level_, "debug, info, warning or error");
  command_.option("--log-format", log_format_, "text or json");
  command_.flag("--insecure", insecure_, "Let clients of other hosts connect without encryption");
}

std::optional<int> ServeFlags::parse(int argc, char** argv, ServeOptions& options) {
  if (const auto status = command_.parse(argc, argv)) return status;
  const Result<void> read_flags = read(options);
  if (read_flags.ok()) return std::nullopt;
  std::fprintf(stderr, "baton serve: %s\n", read_flags.error().text.c_str());
  return cli::kUsage;
}

Result<void> ServeFlags::check_numbers() const {
  for (const auto& [name, value, min, max] :
       {std::tuple{"--prefill-ranks", prefill_ranks_, int64_t{0}, int64_t{4096}},
        std::tuple{"--decode-ranks", decode_ranks_, int64_t{0}, int64_t{4096}},
        std::tuple{"--threads", threads_, int64_t{0}, int64_t{1024}},
        std::tuple{"--max-model-len", context_, int64_t{0}, int64_t{1} << 24},
        std::tuple{"--max-num-seqs", slots_, int64_t{1}, int64_t{4096}},
        std::tuple{"--max-num-batched-tokens", step_tokens_, int64_t{1}, int64_t{65536}},
        std::tuple{"--max-prompts-per-pack", prompts_per_pack_, int64_t{1}, int64_t{1024}},
        std::tuple{"--min-decode-steps", min_decode_steps_, int64_t{1}, int64_t{64}},
        std::tuple{"--catch-up-tokens", catch_up_tokens_, int64_t{1}, int64_t{65536}},
        std::tuple{"--min-step-us", min_step_us_, int64_t{0}, int64_t{1'000'000}},
        std::tuple{"--max-queued", queue_, int64_t{1}, int64_t{1} << 20}}) {
    if (Result<void> checked = in_range(name, value, min, max); !checked.ok()) return checked;
  }
  if (block_size_ != 16 && block_size_ != 32 && block_size_ != 64) {
    return usage_error("--block-size is " + std::to_string(block_size_) +
                       "; expected 16, 32 or 64");
  }
  return {};
}

Result<void> ServeFlags::read(ServeOptions& o) const {
  if (model_.empty()) {
    return usage_error("no model given; expected --model FILE.gguf (or BATON_MODEL)");
  }
  if (Result<void> checked = check_numbers(); !checked.ok()) return checked;
  if (activations_ != "auto" && activations_ != "f32" && activations_ != "int8") {
    return usage_error("--activations is '" + activations_ + "'; expected auto, int8 or f32");
  }
  o.exact_activations = activations_ == "f32";
  if (kv_dtype_ == "auto") {
    o.kv_dtype = o.exact_activations ? KvDtype::f32 : KvDtype::bf16;
  } else if (kv_dtype_ == "bf16" || kv_dtype_ == "f16" || kv_dtype_ == "f32") {
    o.kv_dtype = kv_dtype_ == "bf16"  ? KvDtype::bf16
                 : kv_dtype_ == "f16" ? KvDtype::f16
                                      : KvDtype::f32;
  } else {
    return usage_error("--kv-cache-dtype is '" + kv_dtype_ + "'; expected auto, bf16, f16 or f32");
  }
  if (kv_memory_ != "auto") {
    o.kv_cache_bytes = parse_bytes(kv_memory_);
    if (o.kv_cache_bytes == 0) {
      return usage_error("--kv-cache-memory is '" + kv_memory_ +
                         "'; expected a size such as 512MiB, or auto");
    }
  }
  if (log_level_ != "debug" && log_level_ != "info" && log_level_ != "warning" &&
      log_level_ != "error") {
    return usage_error("--log-level is '" + log_level_ +
                       "'; expected debug, info, warning or error");
  }
  if (log_format_ != "text" && log_format_ != "json") {
    return usage_error("--log-format is '" + log_format_ + "'; expected text or json");
  }
  Result<std::vector<uint32_t>> lengths = parse_lengths(prefill_lengths_);
  if (!lengths.ok()) return lengths.error();
  o.prefill_lengths = *lengths;
  o.model_path = model_;
  o.served_model_name = served_name_;
  o.client_endpoint = endpoint_;
  o.ready_file = ready_file_;
  o.prefill_ranks = prefill_ranks_;
  o.decode_ranks = decode_ranks_;
  o.threads = static_cast<uint32_t>(threads_);
  o.context_max = static_cast<uint32_t>(context_);
  o.min_decode_steps = static_cast<uint32_t>(min_decode_steps_);
  o.catch_up_tokens = static_cast<uint32_t>(catch_up_tokens_);
  o.block_tokens = static_cast<uint32_t>(block_size_);
  o.step_us_min = min_step_us_;
  o.seed = static_cast<uint64_t>(seed_);
  o.insecure = insecure_;
  o.log_level = log_level_;
  o.log_json = log_format_ == "json";
  o.limits.decode_slots = static_cast<size_t>(slots_);
  o.limits.batched_tokens_max = static_cast<size_t>(step_tokens_);
  o.limits.prompts_per_pack_max = static_cast<size_t>(prompts_per_pack_);
  o.limits.queued_requests_max = static_cast<size_t>(queue_);
  o.limits.drain_us = static_cast<Micros>(drain_seconds_ * kSecond);
  return {};
}

}  // namespace baton
