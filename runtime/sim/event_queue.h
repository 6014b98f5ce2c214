#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "runtime/base/time.h"

namespace baton {

// What happens when, in the simulator: ordered by time, then by a random number, then by the order
// of scheduling. The random part makes every order of simultaneous events possible.
class EventQueue {
 public:
  struct Event {
    Micros at = 0;
    uint64_t tie = 0;
    uint64_t sequence = 0;
    uint32_t rank = 0;  // of the process that it happens in
    uint32_t life = 0;  // and its life; see World
    std::function<void()> run;
  };

  void push(Event event);
  Event pop();  // precondition: not empty
  bool empty() const { return heap_.empty(); }
  Micros next_at() const { return heap_.front().at; }
  size_t size() const { return heap_.size(); }

 private:
  std::vector<Event> heap_;
  uint64_t sequence_ = 0;
};

}  // namespace baton
