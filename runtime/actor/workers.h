#pragma once

#include <functional>

#include "runtime/actor/message.h"

namespace baton {

// A pool for work that takes longer than a handler may: tokenising, templates, file reads.
class Workers {
 public:
  virtual ~Workers() = default;

  // Runs `work` on another thread (later on the virtual clock in the simulator) and delivers the
  // mail that it returns. `work` owns all it touches. False when the queue is full: say busy.
  virtual bool run(std::function<Mail()> work) = 0;
};

}  // namespace baton
