#include "runtime/engine/weight_plan.h"

#include <utility>

#include "runtime/base/hash.h"

namespace baton {
namespace {

uint64_t mix_all(uint64_t state, std::initializer_list<uint64_t> values) {
  for (const uint64_t value : values) state = mix64(state ^ value);
  return state;
}

uint64_t key_of(const ModelConfig& c, const ModelPart& part) {
  const uint64_t sizes = mix_all(
      0, {c.layers, c.hidden, c.ffn, c.heads, c.kv_heads, c.head_dim, c.vocab, c.tied ? 1u : 0u});
  return mix_all(sizes, {part.of.tensor_parallel, part.of.pipeline_parallel, part.of.rank});
}

uint64_t digest_of(const std::vector<WeightPiece>& pieces) {
  uint64_t digest = 0;
  for (const WeightPiece& piece : pieces) {
    digest = mix_all(digest, {hash64(piece.tensor.data(), piece.tensor.size()), piece.rows.begin,
                              piece.rows.end});
  }
  return digest;
}

}  // namespace

WeightPlan plan_weights(const ModelConfig& config, const ModelPart& part) {
  WeightPlan plan;
  const auto add = [&](std::string tensor, const Range& rows) {
    plan.pieces.push_back({std::move(tensor), rows});
  };
  const uint32_t dim = config.head_dim;
  const Range queries{part.query_heads.begin * dim, part.query_heads.end * dim};
  const Range keys{part.kv_heads.begin * dim, part.kv_heads.end * dim};
  const Range none{};
  add("token_embd.weight", part.first_stage() ? part.vocab_rows : none);
  for (uint32_t layer = part.layers.begin; layer < part.layers.end; ++layer) {
    add(layer_tensor(layer, "attn_q"), queries);
    add(layer_tensor(layer, "attn_k"), keys);
    add(layer_tensor(layer, "attn_v"), keys);
    add(layer_tensor(layer, "attn_output"), part.hidden_rows);
    add(layer_tensor(layer, "ffn_gate"), part.ffn_rows);
    add(layer_tensor(layer, "ffn_up"), part.ffn_rows);
    add(layer_tensor(layer, "ffn_down"), part.hidden_rows);
  }
  if (!config.tied || !part.first_stage()) {  // otherwise the embedding serves
    add(config.tied ? "token_embd.weight" : "output.weight",
        part.last_stage() ? part.vocab_rows : none);
  }
  plan.digest = digest_of(plan.pieces);
  return plan;
}

WeightPlans::Planned WeightPlans::plan(const ModelConfig& config, const ModelPart& part) {
  std::shared_ptr<const WeightPlan>& known = plans_[key_of(config, part)];
  const bool reused = known != nullptr;
  if (!reused) known = std::make_shared<const WeightPlan>(plan_weights(config, part));
  return {known, reused};
}

}  // namespace baton
