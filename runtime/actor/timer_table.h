#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "runtime/actor/context.h"

namespace baton {

// The pending timers of the actors of one rank. The supervisor owns it; the host's clock drives it.
// A timer that has fired stays pending until its mail is handled, so that cancelling it in between
// still works. Owner thread only.
class TimerTable {
 public:
  struct Entry {
    ActorId owner;
    Micros due = 0;
    uint32_t purpose = 0;
    uint64_t key = 0;
    bool fired = false;
  };

  TimerId add(const Entry& entry);
  void cancel(TimerId id);
  void cancel_all(const ActorId& owner);

  std::optional<Micros> next_due() const;
  // The mail of every timer due by `now`, in order of time, then of setting.
  std::vector<Mail> expire(Micros now);
  // True once for each fired timer that was not cancelled since.
  bool take(TimerId id);
  size_t size() const { return entries_.size(); }

 private:
  std::map<uint64_t, Entry> entries_;           // by id
  std::set<std::pair<Micros, uint64_t>> dues_;  // those that have not fired
  uint64_t next_id_ = 1;
};

}  // namespace baton
