#include "runtime/engine/compute.h"

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

namespace baton {

struct Compute::State {
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<Work> queue;
  bool stopping = false;
  std::thread thread;

  void main(const TeamOptions& options) {
    Team team(options);  // led by this thread for all its life
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || !queue.empty(); });
      if (queue.empty()) return;
      const Work work = std::move(queue.front());
      queue.pop_front();
      lock.unlock();
      work(team);
      lock.lock();
    }
  }
};

Compute::Compute(const TeamOptions& options)
    : threads_(options.threads), state_(std::make_unique<State>()) {
  state_->thread = std::thread([state = state_.get(), options] { state->main(options); });
}

Compute::~Compute() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_one();
  state_->thread.join();
}

void Compute::post(Work work) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->queue.push_back(std::move(work));
  }
  state_->wake.notify_one();
}

void Compute::run(const Work& work) {
  std::promise<void> done;
  post([&](Team& team) {
    work(team);
    done.set_value();
  });
  done.get_future().wait();
}

}  // namespace baton
