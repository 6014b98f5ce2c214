#include "actors/worker/cancelled_memory.h"

#include <algorithm>

namespace baton {

void CancelledMemory::note(RequestId request, Epoch epoch) {
  const auto [place, added] = epochs_.try_emplace(request, epoch);
  if (!added) {
    place->second = std::max(place->second, epoch);
    return;
  }
  order_.push_back(request);
  if (order_.size() <= requests_max_) return;
  epochs_.erase(order_.front());
  order_.pop_front();
}

bool CancelledMemory::covers(RequestId request, Epoch epoch) const {
  const auto found = epochs_.find(request);
  return found != epochs_.end() && epoch <= found->second;
}

}  // namespace baton
