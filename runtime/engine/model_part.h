#pragma once

#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/layout/box.h"
#include "runtime/layout/placement.h"
#include "runtime/model/model_config.h"

namespace baton {

// One rank of an instance of tensor_parallel x pipeline_parallel ranks; rank p * tensor_parallel +
// r is the r-th of stage p.
struct PartOf {
  uint32_t tensor_parallel = 1;
  uint32_t pipeline_parallel = 1;
  uint32_t rank = 0;

  uint32_t ranks() const { return tensor_parallel * pipeline_parallel; }
  uint32_t tensor_rank() const { return rank % tensor_parallel; }
  uint32_t stage() const { return rank / tensor_parallel; }
};

// What one rank of an instance computes of a model: some layers and, of each matrix, a range of its
// outputs (numerics.md rule 7: heads, blocks of 32, tiles of 16 rows, tiles of 1,024 of the
// vocabulary; inputs are never cut, so no sum crosses a rank). A range may be empty where there are
// more ranks than pieces. Plain data.
struct ModelPart {
  PartOf of;
  Range layers;
  Range query_heads;
  Range kv_heads;     // those that the query heads read; shared with neighbours at its ends
  Range hidden_rows;  // outputs of `attention_out` and `down`
  Range ffn_rows;     // outputs of `gate` and `up`
  Range vocab_rows;   // of the embedding (first stage) and of the output matrix (last stage)

  bool first_stage() const { return of.stage() == 0; }
  bool last_stage() const { return of.stage() + 1 == of.pipeline_parallel; }
  // Query heads of the first kv-head that belong to a neighbour.
  uint32_t query_heads_skipped(const ModelConfig& config) const {
    return query_heads.begin - kv_heads.begin * (config.heads / config.kv_heads);
  }
};

// Pure. Fails with invalid_argument where a rank would have no query head or no layer.
Result<ModelPart> part_of_model(const ModelConfig& config, const PartOf& of);

// Who owns what of the KV cache of such an instance: rank i has the layers and kv-heads of its
// part. CHECKs that part_of_model accepted the degrees.
Placement placement_of(const ModelConfig& config, const PartOf& of, KvDtype dtype,
                       uint32_t block_tokens);

}  // namespace baton
