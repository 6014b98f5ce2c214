#include "runtime/sim/event_queue.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace baton {
namespace {

bool later(const EventQueue::Event& a, const EventQueue::Event& b) {
  return std::tie(a.at, a.tie, a.sequence) > std::tie(b.at, b.tie, b.sequence);
}

}  // namespace

void EventQueue::push(Event event) {
  event.sequence = sequence_++;
  heap_.push_back(std::move(event));
  std::push_heap(heap_.begin(), heap_.end(), later);
}

EventQueue::Event EventQueue::pop() {
  std::pop_heap(heap_.begin(), heap_.end(), later);
  Event event = std::move(heap_.back());
  heap_.pop_back();
  return event;
}

}  // namespace baton
