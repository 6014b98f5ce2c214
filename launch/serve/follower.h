#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "launch/serve/engines.h"
#include "runtime/actor/collective.h"

namespace baton {

// A rank of an instance that is not its first: owns the thread on which its engine follows the
// first rank. Made and ended by the thread that runs the node.
class Follower {
 public:
  // `ended` runs on the follower's thread when the first rank has said leave, or with what went
  // wrong.
  Follower(Engines engines, std::shared_ptr<Collective> group,
           std::function<void(const Result<void>&)> ended);
  // Gives the first rank a moment to say leave, for they end together; then breaks the group.
  ~Follower();

 private:
  Engines engines_;
  std::shared_ptr<Collective> group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace baton
