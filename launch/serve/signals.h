#pragma once

#include <csignal>
#include <cstdint>
#include <functional>

#include "runtime/actor/message.h"

namespace baton {

// Blocks the ending signals in every thread that is started from now on, and hands each one that
// comes to the host of this rank, as StopAsked. Made by main before any other thread.
class SignalWatch {
 public:
  SignalWatch();
  // Until the process ends; `post` is thread-safe.
  void start(uint32_t rank, std::function<void(Mail)> post);

 private:
  sigset_t set_;
};

}  // namespace baton
