#include "runtime/layout/plan_text.h"

#include <doctest/doctest.h>

using namespace baton;

namespace {

RoutedPlan planned(const PlacementOptions& source, const PlacementOptions& target,
                   const PairTerms& terms) {
  return route_plan(*plan_reshard(*make_placement(source), *make_placement(target)), terms);
}

PlacementOptions smol(uint32_t tensor, uint32_t pipeline = 1, uint32_t block_tokens = 16,
                      KvDtype dtype = KvDtype::bf16) {
  PlacementOptions options;
  options.shape = {30, 3, 64};
  options.query_heads = 9;
  options.tensor_parallel = tensor;
  options.pipeline_parallel = pipeline;
  options.block_tokens = block_tokens;
  options.dtype = dtype;
  return options;
}

}  // namespace

TEST_CASE("a plan as people see it: replicas, and heads that share a source") {
  CHECK(plan_report(planned(smol(4), smol(2), {1, 1 << 20, true}), 1000) ==
        R"(model   30 layers, 3 kv-heads of 64
source  4 ranks, blocks of 16 tokens, bf16, 38,400 bytes per token
target  2 ranks, blocks of 16 tokens, bf16, 30,720 bytes per token

source rank    target rank   layers    kv-heads  how         bytes/token
          1 ->           0   0-29      0-1       copy             15,360
          2 ->           1   0-29      1         copy              7,680
          3 ->           1   0-29      2         copy              7,680

Who sends what (s0: source rank 0):

target rank 0
       kv-head   0    1
               +----+----+
   layers 0-29 |   s1    |
               +----+----+

target rank 1
       kv-head   1    2
               +----+----+
   layers 0-29 | s2 | s3 |
               +----+----+

source ranks that send nothing, since others have the same heads: 0
30,720 bytes per token; 1,000 tokens: 30,965,760 bytes in 32 pieces, 983,040 bytes at most
exact: every value arrives as it was stored
digest 36bce8871894792f
)");
}

TEST_CASE("a plan as people see it: stages to ranks, rounding, and layer groups") {
  CHECK(plan_report(planned(smol(1, 2, 16, KvDtype::f32), smol(3, 1, 64), {2, 1 << 20, true}),
                    1000) ==
        R"(model   30 layers, 3 kv-heads of 64
source  2 ranks, blocks of 16 tokens, f32, 46,080 bytes per token
target  3 ranks, blocks of 64 tokens, bf16, 23,040 bytes per token

source rank    target rank   layers    kv-heads  how         bytes/token
          0 ->           0   0-14      0         round             3,840
          1 ->           0   15-29     0         round             3,840
          0 ->           1   0-14      1         round             3,840
          1 ->           1   15-29     1         round             3,840
          0 ->           2   0-14      2         round             3,840
          1 ->           2   15-29     2         round             3,840

Who sends what (s0: source rank 0):

target rank 0
       kv-head   0
               +----+
   layers 0-14 | s0 |
               +----+
  layers 15-29 | s1 |
               +----+

target rank 1
       kv-head   1
               +----+
   layers 0-14 | s0 |
               +----+
  layers 15-29 | s1 |
               +----+

target rank 2
       kv-head   2
               +----+
   layers 0-14 | s0 |
               +----+
  layers 15-29 | s1 |
               +----+

23,040 bytes per token; 1,000 tokens: 23,592,960 bytes in 24 pieces, 983,040 bytes at most
the layers go in 2 groups
not exact: f32 to bf16 rounds, and results say so
digest f56bb2fbfea04e82
)");
}

TEST_CASE("a plan as programs see it") {
  const Json json = plan_json(planned(smol(4), smol(2), {1, 1 << 20, true}), 1000);
  CHECK(
      write_json(json) ==
      R"({"model":{"layers":30,"kv_heads":3,"head_dim":64},"source":{"block_tokens":16,"d)"
      R"(type":"bf16","bytes_per_token":38400,"ranks":[{"layers":[0,30],"kv_heads":[0,1]})"
      R"(,{"layers":[0,30],"kv_heads":[0,2]},{"layers":[0,30],"kv_heads":[1,2]},{"layers")"
      R"(:[0,30],"kv_heads":[2,3]}]},"target":{"block_tokens":16,"dtype":"bf16","bytes_pe)"
      R"(r_token":30720,"ranks":[{"layers":[0,30],"kv_heads":[0,2]},{"layers":[0,30],"kv_)"
      R"(heads":[1,3]}]},"segments":[{"source_rank":1,"target_rank":0,"layers":[0,30],"kv)"
      R"(_heads":[0,2],"how":"copy","bytes_per_token":15360},{"source_rank":2,"target_ran)"
      R"(k":1,"layers":[0,30],"kv_heads":[1,2],"how":"copy","bytes_per_token":7680},{"sou)"
      R"(rce_rank":3,"target_rank":1,"layers":[0,30],"kv_heads":[2,3],"how":"copy","bytes)"
      R"(_per_token":7680}],"bytes_per_token":30720,"tokens":1000,"bytes":30965760,"piece)"
      R"(s":32,"piece_bytes_max":983040,"layer_groups":1,"packs":false,"exact":true,"digest":"36bce8871894792f"})");
}
