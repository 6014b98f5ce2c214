#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/packed.h"
#include "runtime/base/result.h"
#include "runtime/engine/compute.h"
#include "runtime/engine/linear.h"
#include "runtime/engine/mapped_memory.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_file.h"

namespace baton {

struct LlamaLayer {
  std::vector<float> attention_norm;  // (hidden)
  LinearGroup qkv;                    // hidden -> heads, kv_heads, kv_heads times head_dim
  PackedMatrix attention_out;         // heads * head_dim -> hidden
  std::vector<float> ffn_norm;        // (hidden)
  PackedMatrix gate;                  // hidden -> ffn
  PackedMatrix up;                    // hidden -> ffn
  PackedMatrix down;                  // ffn -> hidden
};

// The weights of a Llama model, packed for the kernels. Immutable once loaded, so every method is
// thread-safe; independent of the file that they came from.
class LlamaWeights {
 public:
  // Bytes packed so far and of all; called on the compute thread, never concurrently.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  // Packs the tensors of a file on the compute team and waits for it. Shared, because the engines
  // of one process (prefill and decode alone in one process) read the same weights and the last of
  // them to end frees them. Errors as read_model_config, or `unavailable` for lack of memory.
  static Result<std::shared_ptr<const LlamaWeights>> load(const ModelFile& file, Compute& compute,
                                                          const Progress& progress = {});

  const ModelConfig& config() const { return config_; }
  const PackedMatrix& embedding() const { return embedding_; }  // (vocab, hidden)
  const std::vector<LlamaLayer>& layers() const { return layers_; }
  const std::vector<float>& output_norm() const { return output_norm_; }
  const PackedMatrix& output() const { return output_; }  // the embedding if they are tied
  uint64_t model_hash() const { return model_hash_; }
  uint64_t bytes() const { return memory_.size(); }

 private:
  class Loader;
  LlamaWeights() = default;

  ModelConfig config_;
  MappedMemory memory_;  // all packed matrices
  PackedMatrix embedding_;
  std::vector<LlamaLayer> layers_;
  std::vector<float> output_norm_;
  PackedMatrix output_;
  uint64_t model_hash_ = 0;
};

}  // namespace baton
