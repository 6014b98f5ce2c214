#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "actors/protocol/weights.h"
#include "launch/sim/swarm_plan.h"
#include "runtime/base/result.h"
#include "runtime/sim/world.h"

namespace baton {

// Connections of clients are numbered from their client's number on; this one belongs to nobody.
inline constexpr uint32_t kOperatorSlot = 1;

// Model files as the simulated hosts see them. What a path leads to is in its name: "/good/N" is
// sound; "/bad/N" cannot be used on any host, "/partly/N" not on every one; "/torn/N" has other
// bytes on each. Pure.
Result<uint64_t> open_sim_weights(const WeightsSource& source, uint32_t rank);

// A simulated operator: asks for other weights at moments drawn from the seed, good ones and bad
// ones, and hears what becomes of it. Owned by one run; its thread only.
class SimUpdates {
 public:
  struct Counts {
    uint64_t asked = 0;
    uint64_t committed = 0;  // reported so
    uint64_t failed = 0;
    uint64_t refused = 0;  // another one was under way
  };
  using Complain = std::function<void(const std::string&)>;

  SimUpdates(World& world, const UpdatePlan& plan, Complain complain);

  void start(Micros until);
  // Nothing is wrong any more: asks for sound weights until they are served, so that workers which
  // could not read the last ones are brought up to date.
  void finish();
  bool finished() const { return finished_; }
  void receive(const Mail& mail);
  const Counts& counts() const { return counts_; }

 private:
  void ask();
  void send(const UpdateWeights& ask);
  void ask_last();
  UpdateWeights draw();

  World& world_;
  const UpdatePlan plan_;
  const Complain complain_;
  Micros until_ = 0;
  bool finished_ = true;
  uint64_t last_ = 0;
  std::map<std::string, UpdateWeights> asked_;  // without a last report, by token
  Counts counts_;
};

}  // namespace baton
