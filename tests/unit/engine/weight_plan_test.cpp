#include "runtime/engine/weight_plan.h"

#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace baton {
namespace {

ModelConfig shape(uint32_t heads, uint32_t kv_heads, uint32_t layers, bool tied) {
  ModelConfig config;
  config.layers = layers;
  config.heads = heads;
  config.kv_heads = kv_heads;
  config.head_dim = 64;
  config.hidden = heads * 64;
  config.ffn = 1536;
  config.vocab = 49152;
  config.tied = tied;
  return config;
}

// How often each row of each matrix is planned, over all ranks of an instance.
std::map<std::string, std::vector<int>> cover(const ModelConfig& config, uint32_t tensor_parallel,
                                              uint32_t pipeline_parallel) {
  std::map<std::string, std::vector<int>> rows;
  for (uint32_t rank = 0; rank < tensor_parallel * pipeline_parallel; ++rank) {
    const Result<ModelPart> part =
        part_of_model(config, {tensor_parallel, pipeline_parallel, rank});
    REQUIRE(part.ok());
    for (const WeightPiece& piece : plan_weights(config, *part).pieces) {
      std::vector<int>& counts = rows[piece.tensor];
      if (counts.size() < piece.rows.end) counts.resize(piece.rows.end);
      for (uint32_t row = piece.rows.begin; row < piece.rows.end; ++row) ++counts[row];
    }
  }
  return rows;
}

TEST_CASE("over the ranks of an instance every row is planned, and once but for shared kv-heads") {
  for (const auto& [heads, kv_heads] : {std::pair{9u, 3u}, {8u, 8u}, {8u, 1u}, {12u, 4u}}) {
    for (const uint32_t tensor : {1u, 2u, 3u, 4u, 8u}) {
      for (const uint32_t stages : {1u, 2u, 3u}) {
        for (const bool tied : {false, true}) {
          const ModelConfig config = shape(heads, kv_heads, 5, tied);
          for (const auto& [tensor_name, counts] : cover(config, tensor, stages)) {
            CAPTURE(tensor_name);
            const bool kv = tensor_name.find("attn_k") != std::string::npos ||
                            tensor_name.find("attn_v") != std::string::npos;
            // The embedding is read at the start, and where it is the output matrix, at the end.
            const bool twice = tied && stages > 1 && tensor_name == "token_embd.weight";
            size_t bad = 0;
            for (const int count : counts) {
              bad += kv ? count < 1 || count > static_cast<int>(tensor) : count != (twice ? 2 : 1);
            }
            CHECK(bad == 0);
          }
          const auto rows = cover(config, tensor, stages);
          CHECK(rows.at("token_embd.weight").size() == config.vocab);
          CHECK(rows.at("blk.4.attn_k.weight").size() == config.kv_width());
          CHECK(rows.at("blk.0.ffn_down.weight").size() == config.hidden);
          CHECK(rows.size() == 5 * 7 + (tied ? 1 : 2));
        }
      }
    }
  }
}

TEST_CASE("T100: a plan depends on shapes and the part alone, and is computed once for them") {
  const ModelConfig config = shape(9, 3, 4, true);
  const ModelPart first = part_of_model(config, {2, 1, 0}).value();
  const ModelPart second = part_of_model(config, {2, 1, 1}).value();
  WeightPlans plans;
  const WeightPlans::Planned one = plans.plan(config, first);
  CHECK_FALSE(one.reused);
  const WeightPlans::Planned again = plans.plan(config, first);
  CHECK(again.reused);
  CHECK(again.plan == one.plan);
  const WeightPlans::Planned other = plans.plan(config, second);
  CHECK_FALSE(other.reused);
  CHECK(other.plan->digest != one.plan->digest);
  ModelConfig untied = config;
  untied.tied = false;
  CHECK_FALSE(plans.plan(untied, first).reused);
  CHECK(plan_weights(config, first).pieces == one.plan->pieces);
}

}  // namespace
}  // namespace baton
