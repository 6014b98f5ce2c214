#include "runtime/node/worker_pool.h"

#include <exception>
#include <string>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace baton {

WorkerPool::WorkerPool(size_t threads, size_t queue_max, std::function<void(Mail)> deliver)
    : queue_max_(queue_max), deliver_(std::move(deliver)) {
  CHECK(threads > 0);
  threads_.reserve(threads);
  for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { serve(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    queue_.clear();
  }
  ready_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::run(std::function<Mail()> work) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || queue_.size() >= queue_max_) return false;
    queue_.push_back(std::move(work));
  }
  ready_.notify_one();
  return true;
}

void WorkerPool::serve() {
  for (;;) {
    std::function<Mail()> work;
    {
      std::unique_lock lock(mutex_);
      ready_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    try {
      deliver_(work());
    } catch (const std::exception& error) {
      log_error(std::string("work on the pool threw, its result is lost: ") + error.what());
    }
  }
}

}  // namespace baton
