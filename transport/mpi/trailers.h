#pragma once

#include <cstdint>
#include <deque>
#include <vector>

namespace baton {

// Places for the digests that go or come behind pieces. Their memory stays where it is as long as
// the pool lives, whatever becomes of a piece: MPI may look at what was given up. Owned by the data
// thread.
class Trailers {
 public:
  uint64_t* take() {
    if (free_.empty()) free_.push_back(&places_.emplace_back());
    uint64_t* place = free_.back();
    free_.pop_back();
    *place = 0;
    return place;
  }
  void give_back(uint64_t* place) { free_.push_back(place); }

 private:
  std::deque<uint64_t> places_;
  std::vector<uint64_t*> free_;
};

}  // namespace baton
