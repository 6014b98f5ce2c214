#pragma once

#include <functional>
#include <memory>

#include "kernels/team.h"

namespace baton {

// The compute thread of a process and the team that it leads: runs closures one after another, in
// the order in which they were posted. Engines of one process share one, so that they take turns on
// its cores instead of fighting for them.
class Compute {
 public:
  using Work = std::function<void(Team&)>;

  explicit Compute(const TeamOptions& options);
  // Runs what was posted, then stops.
  ~Compute();
  Compute(const Compute&) = delete;
  Compute& operator=(const Compute&) = delete;

  int threads() const { return threads_; }

  // thread-safe; `work` must not throw.
  void post(Work work);
  // thread-safe, but not from within work: posts and waits until it ran.
  void run(const Work& work);

 private:
  struct State;
  int threads_;
  std::unique_ptr<State> state_;
};

}  // namespace baton
