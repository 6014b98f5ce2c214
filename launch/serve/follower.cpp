#include "launch/serve/follower.h"

#include <chrono>
#include <utility>

namespace baton {
namespace {

constexpr std::chrono::seconds kLeaveWithin{2};

}  // namespace

Follower::Follower(Engines engines, std::shared_ptr<Collective> group,
                   std::function<void(const Result<void>&)> ended)
    : engines_(std::move(engines)), group_(std::move(group)) {
  CHECK(engines_.engines.size() == 1);
  thread_ = std::thread([this, ended = std::move(ended)] {
    const Result<void> followed = engines_.engines.front()->follow();
    ended(followed);
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_one();
  });
}

Follower::~Follower() {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLeaveWithin, [this] { return over_; });
    if (!over_) group_->abort("this rank leaves");
  }
  thread_.join();
}

}  // namespace baton
