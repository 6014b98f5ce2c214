#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "launch/sim/sim_options.h"

namespace baton {

// Collects what the checkers find, each thing once and the first few only. Owned by one run.
class Findings {
 public:
  static constexpr size_t kMax = 20;

  void add(const std::string& checker, std::string text) {
    const bool known = std::any_of(list_.begin(), list_.end(), [&](const Finding& finding) {
      return finding.checker == checker && finding.text == text;
    });
    if (!known && list_.size() < kMax) list_.push_back({checker, std::move(text)});
  }
  bool empty() const { return list_.empty(); }
  const std::vector<Finding>& list() const { return list_; }

 private:
  std::vector<Finding> list_;
};

}  // namespace baton
