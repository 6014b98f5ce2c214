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
#include "runtime/engine/model_part.h"
#include "runtime/engine/weight_plan.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_file.h"
#include "runtime/model/same_model.h"

namespace baton {

// Of each matrix the outputs of the rank's part; one rank alone has them all.
struct LlamaLayer {
  std::vector<float> attention_norm;  // (hidden)
  LinearGroup qkv;                    // hidden -> heads, kv_heads, kv_heads times head_dim
  PackedMatrix attention_out;         // heads * head_dim -> hidden
  std::vector<float> ffn_norm;        // (hidden)
  PackedMatrix gate;                  // hidden -> ffn
  PackedMatrix up;                    // hidden -> ffn
  PackedMatrix down;                  // ffn -> hidden
};

// The weights of a Llama model, or of one rank's part of it, packed for the kernels. Immutable once
// loaded, so every method is thread-safe; independent of the file that they came from.
class LlamaWeights {
 public:
  // Bytes packed so far and of all; called on the compute thread, never concurrently.
  using Progress = std::function<void(uint64_t done, uint64_t total)>;

  // Packs the tensors of a file on the compute team and waits for it. Shared, because the engines
  // of one process (prefill and decode alone in one process) read the same weights and the last of
  // them to end frees them. Only the part of one rank of an instance is read and packed. Errors as
  // read_model_config and part_of_model, or `unavailable` for lack of memory.
  static Result<std::shared_ptr<const LlamaWeights>> load(const ModelFile& file, Compute& compute,
                                                          const Progress& progress = {},
                                                          const PartOf& of = {});
  // Reads, checks and packs the tensors on the calling thread, for a set that is to take the place
  // of `served` while steps go on: everything that makes it fit (shapes, tokenizer, numbers that
  // are finite) is checked, of the whole file, and nothing of it is read from a mapping.
  // `cancelled` is asked between tensors. Errors besides: conflict (another model), corrupt (the
  // file changed), cancelled.
  static Result<std::shared_ptr<const LlamaWeights>> load_beside(
      const ModelFile& file, const ModelIdentity& served, WeightPlans& plans,
      const std::function<bool()>& cancelled, const PartOf& of = {});

  const ModelConfig& config() const { return identity_.config; }  // of the whole model
  const ModelIdentity& identity() const { return identity_; }
  const ModelPart& part() const { return part_; }
  // (vocab_rows of the part, hidden); in the first stage.
  const PackedMatrix& embedding() const { return embedding_; }
  const std::vector<LlamaLayer>& layers() const { return layers_; }  // those of the part
  const std::vector<float>& output_norm() const { return output_norm_; }
  // (vocab_rows of the part, hidden); in the last stage. The embedding if they are tied.
  const PackedMatrix& output() const { return output_; }
  uint64_t model_hash() const { return model_hash_; }
  uint64_t bytes() const { return memory_.size(); }
  // Of what was read: equal for equal tensors. 0 for a set that load() brought, which does not read
  // a file twice; model_hash() stands for it then.
  uint64_t digest() const { return digest_; }
  // load_beside() found its plan among those it was given.
  bool plan_reused() const { return plan_reused_; }

 private:
  class Loader;
  LlamaWeights() = default;

  ModelIdentity identity_;
  ModelPart part_;
  MappedMemory memory_;  // all packed matrices
  PackedMatrix embedding_;
  std::vector<LlamaLayer> layers_;
  std::vector<float> output_norm_;
  PackedMatrix output_;
  uint64_t model_hash_ = 0;
  uint64_t digest_ = 0;
  bool plan_reused_ = false;
};

}  // namespace baton
