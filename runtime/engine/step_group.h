#pragma once

#include "kernels/team.h"
#include "runtime/actor/collective.h"

namespace baton {

// The other ranks of an instance as the threads of this one see them within a step. Without a group
// it is one rank, and to meet is the team's barrier. Once the group is broken, nobody waits any
// more and what is computed means nothing: the threads of a rank agree on when that was, because
// they learn it in the same meeting. Made by an engine; used on its compute team.
class StepGroup {
 public:
  explicit StepGroup(Collective* group) : group_(group) {}

  bool alone() const { return group_ == nullptr; }
  bool broken() const { return broken_; }

  // All threads of all ranks of the circle.
  void meet(Team& team, int thread, Circle circle) {
    team.barrier();
    if (group_ == nullptr) return;
    if (thread == 0 && !broken_) broken_ = !group_->meet(circle).ok();
    team.barrier();
  }

 private:
  Collective* const group_;
  bool broken_ = false;  // changes between two barriers of the team
};

// A thread of the team within a step.
struct TeamMember {
  Team& team;
  int thread;
  int n;
  StepGroup& group;

  Share share_of(std::size_t count) const { return share(count, thread, n); }
  void meet() const { team.barrier(); }                                  // of this rank
  void meet_stage() const { group.meet(team, thread, Circle::part); }    // of this stage's ranks
  void meet_instance() const { group.meet(team, thread, Circle::all); }  // of all ranks
};

}  // namespace baton
