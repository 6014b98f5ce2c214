#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/actor/actor.h"
#include "runtime/actor/mailbox.h"
#include "runtime/actor/timer_table.h"

namespace baton {

using ActorFactory = std::function<std::unique_ptr<Actor>()>;

// Where the supervisor's host (the node, or the simulator) differs: clock, dice, roads.
struct SupervisorHooks {
  std::function<Micros()> now;
  std::function<uint64_t()> random;
  std::function<void(Mail)> post;       // to wherever `to` is, this rank included
  std::function<void(Micros)> wake_at;  // call expire_timers() at this instant
  // An actor has used up its restarts: the rank should end. It stays dead.
  std::function<void(const ActorId&, const std::string& reason)> escalate;
};

struct SupervisorCounts {
  uint64_t handled = 0;
  uint64_t stale = 0;          // for a life that has ended
  uint64_t undeliverable = 0;  // for nobody
  uint64_t undecodable = 0;    // not a message of the actor, or a body that is none
  uint64_t restarts = 0;
};

// Owns the actors of one rank, by slot, with the factories that rebuild them, and their mailboxes
// and timers. The host hands it one message at a time. Mail for an earlier incarnation is dropped
// and counted; an actor that throws is destroyed and rebuilt under the next incarnation, and the
// other actors of the rank hear ActorDown. Owner thread only, but for push().
class Supervisor {
 public:
  static constexpr int kRestartsMax = 3;
  static constexpr Micros kRestartWindow = 60 * kSecond;

  Supervisor(uint32_t rank, SupervisorHooks hooks, const Limits& limits);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  // Before start() only. `incarnation` is that of the first life; it differs from those of every
  // earlier process that had this rank.
  void add(uint32_t slot, uint32_t incarnation, ActorFactory factory);
  // Builds and starts all actors, in order of slot.
  void start();

  // Puts mail into a slot's mailbox, and moves from it only when it is accepted; an unknown slot
  // says `closed`. thread-safe once every actor is added
  Mailbox::Outcome push(Mail&& mail);
  // Next messages of a slot, at most `max`; none ends the drain.
  void take(uint32_t slot, std::vector<Mail>& out, size_t max);
  // Lets the actor handle one message, behind the fences.
  void dispatch(const Mail& mail);
  // Tells the sender, if it waits for a reaction, that nobody was there (or all was full).
  void bounce(const Envelope& came, bool full);

  // Puts the mail of every due timer into the mailboxes; the slots named need a drain.
  std::vector<uint32_t> expire_timers();
  // Restarts an actor as if it had thrown.
  void fail(uint32_t slot, const std::string& reason);

  // Closes every mailbox: what comes later finds nobody. thread-safe
  void close();

  std::vector<uint32_t> slots() const;
  // The living actor of a slot, for those who look from outside; null while it is dead.
  Actor* actor(uint32_t slot) const;
  uint32_t incarnation(uint32_t slot) const;
  const SupervisorCounts& counts() const { return counts_; }

 private:
  class Life;
  struct Slot {
    ActorFactory factory;
    uint32_t incarnation = 0;
    std::unique_ptr<Mailbox> mailbox;
    std::unique_ptr<Life> life;  // outlives `actor`
    std::unique_ptr<Actor> actor;
    std::vector<Micros> restarts;  // within the window
    bool given_up = false;
  };

  void build(uint32_t number, Slot& slot);
  void restart(uint32_t number, Slot& slot, const std::string& reason);
  bool restart_allowed(Slot& slot);
  void announce_down(const ActorId& actor, const std::string& reason);
  TimerId set_timer(const ActorId& owner, Micros delay, uint32_t purpose, uint64_t key);

  const uint32_t rank_;
  const SupervisorHooks hooks_;
  const Limits limits_;
  TimerTable timers_;
  std::map<uint32_t, Slot> slots_;
  SupervisorCounts counts_;
};

}  // namespace baton
