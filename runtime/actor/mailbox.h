#pragma once

#include <cstddef>
#include <deque>
#include <mutex>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/base/limits.h"

namespace baton {

enum class Pushed : uint8_t { accepted, full, closed };

// The mail that waits for one actor. Any thread pushes; the runtime's loop takes. Two lanes:
// control goes first, and only mail that begins new work is refused when the work lane is full
// (runtime/actor/delivery.h). All else is bounded by what was accepted before, and CHECKed.
class Mailbox {
 public:
  explicit Mailbox(const Limits& limits);
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  struct Outcome {
    Pushed pushed = Pushed::accepted;
    // The mailbox went from idle to busy: the caller has to see to one drain. Later pushes need
    // none until the owner has found the mailbox empty.
    bool wake = false;
  };
  // Moves from `mail` only when it accepts it. thread-safe
  Outcome push(Mail&& mail);

  // Moves up to `max` messages to `out` (which is cleared), control first. An empty result ends
  // the drain: the next push asks for a new one. Owner thread only.
  void take(std::vector<Mail>& out, size_t max);

  // Drops what waits and refuses the rest with `closed`. thread-safe
  void close();
  // thread-safe
  size_t size() const;

 private:
  const size_t work_max_;
  const size_t hard_max_;  // of either lane: beyond it something is sent without bound
  mutable std::mutex mutex_;
  std::deque<Mail> control_;
  std::deque<Mail> work_;
  bool scheduled_ = false;  // a drain is on its way
  bool closed_ = false;
};

}  // namespace baton
