#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/unit/engine/engine_driver.h"
#include "tests/unit/engine/followers.h"

namespace baton {

// The file of a tiny model by its name in tests/oracle/data/tiny_logits.json ("Q4_1 eight
// kv-heads"). All of them are made at the first call, by tests/oracle/make_models. A path that
// starts with a slash is that of any other model.
std::string tiny_model_path(const std::string& name);

// Packed weights of a tiny model, or of a part of it, packed once per process.
std::shared_ptr<const LlamaWeights> tiny_weights(const std::string& name, const PartOf& of = {});

struct RigOptions {
  std::string model = "Q4_1";
  std::shared_ptr<const LlamaWeights> weights;  // if set, instead of `model`
  ActivationMode mode = ActivationMode::int8;
  KvDtype kv_dtype = KvDtype::bf16;
  uint32_t block_tokens = 16;
  int threads = 1;
  Isa isa = detect();
  uint32_t step_tokens_max = 2048;
  uint32_t kv_blocks = 0;  // 0: for 16,384 tokens
  uint32_t tensor_parallel = 1;
  uint32_t pipeline_parallel = 1;
};

inline RigOptions rig_options(const std::string& model, ActivationMode mode, KvDtype kv_dtype) {
  RigOptions options;
  options.model = model;
  options.mode = mode;
  options.kv_dtype = kv_dtype;
  return options;
}

// A sequence as a scheduler would drive it: its prompt from step `start` on, whole or in chunks of
// at most `chunk` tokens, then one token a step.
struct Sequence {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  uint32_t choice = 0;
  uint32_t start = 0;
  uint32_t chunk = 0;  // 0: whole
};

// All that an engine said about one sequence. Equality is equality of bits.
struct Trace {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  std::vector<std::vector<float>> logits;  // before each token
  std::vector<std::vector<TokenLogprob>> top;
  std::vector<float> prompt_logprobs;  // of tokens[1..] of each chunk, one behind the other
  std::vector<std::vector<TokenLogprob>> prompt_top;
  bool numerical_error = false;
};
bool same_bits(const Trace& a, const Trace& b);
bool same_bits(const std::vector<Trace>& a, const std::vector<Trace>& b);

// A sequence under way on some engine: where it is, in blocks of that engine. With the blocks that
// its KV was moved to, another engine goes on with it.
struct Leg {
  Sequence sequence;
  std::vector<BlockId> blocks;
  uint32_t done = 0;  // tokens in the KV store
  Trace trace{};
};

// A CpuEngine of a tiny model that keeps the logits it sees.
class EngineRig {
 public:
  explicit EngineRig(const RigOptions& options);

  CpuEngine& engine() { return driver_->engine(); }
  EngineDriver& driver() { return *driver_; }

  // Runs all sequences together, each until it has `new_tokens` tokens (0: only its prompt, without
  // choosing a token). Blocks start from the first one again, as the last run left them.
  std::vector<Trace> run(const std::vector<Sequence>& sequences, uint32_t new_tokens);
  // Takes the legs further together, each until it has `new_tokens` tokens; its blocks cover them.
  void advance(std::vector<Leg>& legs, uint32_t new_tokens);
  Trace run_alone(const Sequence& sequence, uint32_t new_tokens) {
    return run({sequence}, new_tokens).front();
  }

 private:
  BatchRow next_row(Leg& leg, uint32_t new_tokens, uint64_t key) const;
  void take(Leg& leg, RowResult result);

  std::mutex mutex_;
  std::map<uint64_t, std::vector<float>> logits_;  // of the current step, by key
  std::unique_ptr<Followers> followers_;           // outlive the engine that they follow
  std::unique_ptr<EngineDriver> driver_;
};

// Ids that look random but are the same everywhere.
std::vector<TokenId> made_up_prompt(std::size_t size, uint64_t seed, uint32_t vocabulary = 512);

}  // namespace baton
