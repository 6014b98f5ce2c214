#pragma once

#include <cstddef>
#include <deque>
#include <map>

#include "runtime/base/ids.h"

namespace baton {

// Which requests were cancelled, and up to which epoch: a Run, Reserve or Adopt that its Cancel has
// overtaken (another link, another lane) is refused instead of being obeyed. Bounded: the oldest
// request is forgotten. A worker actor owns one; owner thread only.
class CancelledMemory {
 public:
  explicit CancelledMemory(size_t requests_max) : requests_max_(requests_max) {}

  // Every life of the request with epoch <= `epoch` is over.
  void note(RequestId request, Epoch epoch);
  bool covers(RequestId request, Epoch epoch) const;
  size_t size() const { return epochs_.size(); }

 private:
  const size_t requests_max_;
  std::map<RequestId, Epoch> epochs_;
  std::deque<RequestId> order_;
};

}  // namespace baton
