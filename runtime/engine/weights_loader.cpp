#include "runtime/engine/weights_loader.h"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/model/model_file.h"

namespace baton {
namespace {

constexpr int kNiceness = 15;  // of 19: what is left by whoever computes, and a little more

int64_t micros_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() -
                                                               start)
      .count();
}

bool equal_digits(const std::string& a, const std::string& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](unsigned char x, unsigned char y) {
    return std::tolower(x) == std::tolower(y);
  });
}

}  // namespace

struct WeightsLoader::State {
  struct Waiter {
    std::weak_ptr<void> interest;
    Done done;
  };
  struct Job {
    WeightsOrder order;
    std::vector<Waiter> waiters;
  };

  ModelIdentity served;
  PartOf of;
  WeightPlans plans;  // of the thread
  std::mutex mutex;
  std::condition_variable wake;
  std::deque<std::shared_ptr<Job>> queue;  // the first is under way; shared with its thread
  std::map<uint64_t, std::weak_ptr<const LlamaWeights>> sets;  // by ticket; those still in use
  bool stopping = false;
  bool calling = false;  // a `done`
  std::condition_variable called;
  std::thread thread;

  bool wanted(const Job& job) {
    const std::lock_guard lock(mutex);
    return !stopping && std::any_of(job.waiters.begin(), job.waiters.end(),
                                    [](const Waiter& w) { return !w.interest.expired(); });
  }

  Result<Set> bring(const Job& job) {
    {
      const std::lock_guard lock(mutex);
      if (Set known = sets[job.order.ticket].lock()) return known;
    }
    const WeightsSource& source = job.order.source;
    if (!source.sha256.empty()) {
      const Result<std::string> digits = sha256_of_file(source.path);
      if (!digits) return digits.error();
      if (!equal_digits(*digits, source.sha256)) {
        return Error{ErrorCode::corrupt, source.path + ": its SHA-256 is " + *digits +
                                             ", expected " + source.sha256 +
                                             "; copy the file again"};
      }
    }
    const Result<ModelFile> file = ModelFile::open(source.path);
    if (!file) return file.error();
    return LlamaWeights::load_beside(
        *file, served, plans, [&] { return !wanted(job); }, of);
  }

  void main() {
    // Of this thread alone; where it is not allowed, the thread competes as any other.
    setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), kNiceness);
    std::unique_lock lock(mutex);
    for (;;) {
      wake.wait(lock, [&] { return stopping || !queue.empty(); });
      if (stopping) return;
      const std::shared_ptr<Job> job = queue.front();
      lock.unlock();
      const auto start = std::chrono::steady_clock::now();
      const Result<Set> set = bring(*job);
      lock.lock();
      std::erase_if(sets, [](const auto& entry) { return entry.second.expired(); });
      if (set.ok()) sets[job->order.ticket] = *set;
      queue.pop_front();  // later orders of this ticket find the set, or try again
      for (const Waiter& waiter : job->waiters) {
        if (waiter.interest.expired()) continue;
        calling = true;
        lock.unlock();
        waiter.done(set, micros_since(start));
        lock.lock();
        calling = false;
        called.notify_all();
      }
    }
  }
};

WeightsLoader::WeightsLoader(ModelIdentity served, const PartOf& of)
    : state_(std::make_unique<State>()) {
  state_->served = std::move(served);
  state_->of = of;
  state_->thread = std::thread([state = state_.get()] { state->main(); });
}

WeightsLoader::~WeightsLoader() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
  }
  state_->wake.notify_one();
  state_->thread.join();
}

WeightsLoader::Interest WeightsLoader::load(const WeightsOrder& order, Done done) {
  auto interest = std::make_shared<char>();
  {
    const std::lock_guard lock(state_->mutex);
    const auto same =
        std::find_if(state_->queue.begin(), state_->queue.end(),
                     [&](const auto& job) { return job->order.ticket == order.ticket; });
    if (same != state_->queue.end()) {
      (*same)->waiters.push_back({interest, std::move(done)});
      return interest;
    }
    auto job = std::make_shared<State::Job>();
    job->order = order;
    job->waiters.push_back({interest, std::move(done)});
    state_->queue.push_back(std::move(job));
  }
  state_->wake.notify_one();
  return interest;
}

void WeightsLoader::quiesce() {
  std::unique_lock lock(state_->mutex);
  state_->called.wait(lock, [this] { return !state_->calling; });
}

}  // namespace baton
