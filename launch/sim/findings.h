#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/sim/sim_options.h"

namespace baton {

// Collects what the checkers find; the first few of each are enough. Owned by one run.
class Findings {
 public:
  static constexpr size_t kMax = 20;

  void add(const std::string& checker, std::string text) {
    if (list_.size() < kMax) list_.push_back({checker, std::move(text)});
  }
  bool empty() const { return list_.empty(); }
  const std::vector<Finding>& list() const { return list_; }

 private:
  std::vector<Finding> list_;
};

}  // namespace baton
