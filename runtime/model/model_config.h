#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/result.h"
#include "runtime/model/model_file.h"

namespace baton {

// The shape of a Llama model, as its metadata and tensors agree on it. Plain data.
struct ModelConfig {
  std::string name;          // general.name, or the file's name without folder and ending
  std::string architecture;  // "llama"
  std::uint32_t layers = 0;
  std::uint32_t hidden = 0;  // width of the residual stream
  std::uint32_t ffn = 0;     // inner width of the feed-forward network
  std::uint32_t heads = 0;   // query heads; kv_heads divides it
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;  // even; hidden == heads * head_dim
  std::uint32_t context = 0;   // tokens the model was trained for
  std::uint32_t vocab = 0;     // rows of the embedding, and entries of the tokenizer
  float rope_base = 10000.0f;  // RoPE over all head_dim, neighbouring pairs (2i, 2i+1), no scaling
  float norm_eps = 1e-5f;
  bool tied = false;  // no output.weight: logits use token_embd.weight
  std::uint64_t parameters = 0;
  std::string weight_types;  // "Q4_1 (210), F32 (61), Q8_0 (1)": tensors by type, most first

  std::uint32_t kv_width() const { return kv_heads * head_dim; }
};

// Reads and checks the configuration: sizes within limits and consistent, every tensor of a Llama
// model there with its shape, none that this build would have to ignore. Errors as ModelFile.
Result<ModelConfig> read_model_config(const ModelFile& file);

// Names of the tensors of layer N, as in the file: layer_tensor(3, "attn_q") is
// "blk.3.attn_q.weight".
std::string layer_tensor(std::uint32_t layer, const char* part);

}  // namespace baton
