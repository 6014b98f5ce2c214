#include "runtime/layout/placement.h"

#include <doctest/doctest.h>

namespace baton {

TEST_CASE("the degrees of a placement are those it was made with") {
  for (const uint32_t tensor : {1u, 2u, 3u, 7u}) {
    for (const uint32_t pipeline : {1u, 2u, 5u}) {
      PlacementOptions options;
      options.shape = {5, 2, 16};
      options.query_heads = 8;
      options.tensor_parallel = tensor;
      options.pipeline_parallel = pipeline;
      const Degrees degrees = degrees_of(make_placement(options).value());
      CHECK(degrees.tensor_parallel == tensor);
      CHECK(degrees.pipeline_parallel == pipeline);
    }
  }
  CHECK(degrees_of(Placement{}).tensor_parallel == 1);
}

}  // namespace baton
