#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/base/fields.h"
#include "runtime/engine/model_part.h"
#include "runtime/layout/box.h"
#include "runtime/model/model_config.h"

namespace baton {

// Rows of one matrix of the model file. A matrix that is read in two places has two pieces.
struct WeightPiece {
  std::string tensor;
  Range rows;
  BATON_FIELDS(tensor, rows)
  friend bool operator==(const WeightPiece&, const WeightPiece&) = default;
};

// Which rows of which matrices one rank of an instance packs, in the order in which it does: the
// counterpart for weights of a reshard plan. Vectors (norms) are on every rank that reads them and
// need no plan. Over the ranks of an instance every row is planned, and once, but for kv-heads that
// several ranks share. Sizes come from here, never from what a file or the memory happens to hold.
struct WeightPlan {
  std::vector<WeightPiece> pieces;
  uint64_t digest = 0;
};

// Pure.
WeightPlan plan_weights(const ModelConfig& config, const ModelPart& part);

// Plans by what they depend on: sizes of the model and the part of the rank. Owner thread only.
class WeightPlans {
 public:
  struct Planned {
    std::shared_ptr<const WeightPlan> plan;  // shared with the sets that were made by it
    bool reused = false;                     // it was here already
  };
  Planned plan(const ModelConfig& config, const ModelPart& part);

 private:
  std::map<uint64_t, std::shared_ptr<const WeightPlan>> plans_;  // by a hash of both
};

}  // namespace baton
