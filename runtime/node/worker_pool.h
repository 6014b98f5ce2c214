#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/actor/workers.h"

namespace baton {

// A fixed number of threads that run work in the order it came, from a bounded queue. The node
// owns it. `deliver` is called on the pool's threads with the mail that work returns. Work may not
// throw: what does is logged, and its mail is lost.
class WorkerPool final : public Workers {
 public:
  WorkerPool(size_t threads, size_t queue_max, std::function<void(Mail)> deliver);
  // Drops what has not begun and waits for what has.
  ~WorkerPool() override;

  // thread-safe
  bool run(std::function<Mail()> work) override;

 private:
  void serve();

  const size_t queue_max_;
  const std::function<void(Mail)> deliver_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<Mail()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace baton
