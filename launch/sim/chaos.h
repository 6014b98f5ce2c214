#pragma once

#include <cstdint>
#include <functional>

#include "launch/sim/sim_cluster.h"

namespace baton {

// What happens to a cluster in the first phase of a run: the faults of its plan, at moments drawn
// from the seed; and its end, after which nothing is wrong any more. Owned by one run.
class Chaos {
 public:
  struct Counts {
    uint64_t crashes = 0;
    uint64_t stalls = 0;
    uint64_t cuts = 0;
    uint64_t failures = 0;  // of actors
  };

  explicit Chaos(SimCluster& cluster);
  void start();
  // Heals the network and the data plane and brings back what is down. From now on only a process
  // that ends by itself is down, for a moment.
  void stop();
  const Counts& counts() const { return counts_; }

 private:
  void repeat(double per_second, std::function<void()> fault);
  void cut();
  void clog();
  void crash();
  void stall(uint32_t rank);
  void fail_actor();
  Interference meddle(const Mail& mail);
  uint32_t random_worker();
  uint32_t random_rank();
  void restart_later(uint32_t rank);
  void resurrect();

  SimCluster& cluster_;
  World& world_;
  const ChaosPlan& plan_;
  Counts counts_;
  bool active_ = false;
  int failures_alone_ = 0;
};

}  // namespace baton
