#include "runtime/engine/model_part.h"

#include <algorithm>

#include "kernels/formats.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

namespace baton {
namespace {

// The part of `count` outputs that rank `rank` of `ranks` takes, in units of `unit`.
Range cut(uint32_t count, uint32_t unit, uint32_t rank, uint32_t ranks) {
  const uint64_t units = (uint64_t{count} + unit - 1) / unit;
  const auto at = [&](uint32_t r) {
    return static_cast<uint32_t>(std::min<uint64_t>(units * r / ranks * unit, count));
  };
  return {at(rank), at(rank + 1)};
}

PlacementOptions placement_options(const ModelConfig& config, const PartOf& of) {
  PlacementOptions options;
  options.shape = {config.layers, config.kv_heads, config.head_dim};
  options.query_heads = config.heads;
  options.tensor_parallel = of.tensor_parallel;
  options.pipeline_parallel = of.pipeline_parallel;
  return options;
}

}  // namespace

Result<ModelPart> part_of_model(const ModelConfig& config, const PartOf& of) {
  const Result<Placement> placement = make_placement(placement_options(config, of));
  if (!placement.ok()) return placement.error();
  CHECK(of.rank < of.ranks());
  const uint32_t r = of.tensor_rank();
  const uint32_t ranks = of.tensor_parallel;
  ModelPart part;
  part.of = of;
  part.layers = placement->ranks[of.rank].layers;
  part.kv_heads = placement->ranks[of.rank].heads;
  part.query_heads = query_heads_of(config.heads, ranks, r);
  part.hidden_rows = cut(config.hidden, kTileRows, r, ranks);
  part.ffn_rows = cut(config.ffn, kQuantBlock, r, ranks);
  part.vocab_rows = cut(config.vocab, kVocabTile, r, ranks);
  return part;
}

Placement placement_of(const ModelConfig& config, const PartOf& of, KvDtype dtype,
                       uint32_t block_tokens) {
  PlacementOptions options = placement_options(config, of);
  options.dtype = dtype;
  options.block_tokens = block_tokens;
  return make_placement(options).value();
}

}  // namespace baton
