#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "runtime/actor/actor_id.h"
#include "runtime/base/ids.h"
#include "runtime/base/limits.h"

namespace baton {

using SessionId = StrongId<struct SessionTag, uint64_t>;

// A job of one client: the client's own number within its session.
struct JobKey {
  SessionId session;
  uint64_t job = 0;
  friend constexpr auto operator<=>(const JobKey&, const JobKey&) = default;
};

// How far one choice's stream has been sent to one client.
struct SendCursor {
  uint32_t next = 0;   // tokens sent
  bool ended = false;  // and the choice's last text
};

// One client's view of one request. Several clients can watch one (same idempotency key).
struct Job {
  RequestId request;
  uint64_t correlation = 0;
  bool stream = true;
  bool must_fetch = false;  // reconnected: nothing is sent until the client says where it is
  bool told = false;        // the terminal event was sent
  Micros arrived = 0;
  Micros first_sent = kNever;  // when its first token was sent
  std::vector<SendCursor> cursors;

  struct Part {
    uint32_t choice = 0;
    uint32_t next = 0;
    size_t bytes = 0;
  };
  std::deque<Part> unacked;  // stretches sent, until the client acknowledges them
};

// One client, over all its connections. `address` is empty while it has none.
struct Session {
  SessionId id;
  std::string token;   // the secret with which it comes back
  std::string client;  // as it calls itself
  std::optional<ActorId> address;
  std::map<uint64_t, Job> jobs;
  std::set<uint64_t> backlog;  // jobs with something to send that could not be sent
  size_t live = 0;             // jobs without a terminal event yet
  size_t unacked_bytes = 0;
  Micros detached_at = 0;
  bool abandoned = false;  // its grace has passed
  TimerId grace_timer;     // value 0: none
  TimerId slow_timer;
};

// The clients of a gateway: who is connected where, and how many bytes each has not acknowledged.
// Owned by the gateway, its thread only. Pure bookkeeping: no clock, no sending. References stay
// valid until the session is erased.
class Sessions {
 public:
  explicit Sessions(const Limits& limits) : limits_(limits) {}

  Session* at(const ActorId& address);
  Session* find(SessionId id);
  Session* find(const std::string& token);
  size_t size() const { return sessions_.size(); }
  size_t connected() const { return addresses_.size(); }
  bool full() const { return sessions_.size() >= limits_.clients_max; }
  // The abandoned session without live jobs that left first, to make room; null if there is none.
  Session* replaceable();

  // Precondition: not full, the token is new, nobody is at the address.
  Session& open(const ActorId& address, const std::string& token, const std::string& client);
  // A client is back. What was under way on the old connection is lost: its jobs wait for Fetch.
  // Precondition: nobody else is at the address.
  void attach(Session& session, const ActorId& address);
  void detach(Session& session, Micros now);
  void erase(SessionId id);

  Job& add_job(Session& session, uint64_t number, Job job);
  void erase_job(Session& session, uint64_t number);
  // True while the client has not acknowledged as much as may be under way: it gets nothing more.
  bool blocked(const Session& session) const;
  void note_sent(Session& session, Job& job, const Job::Part& part);
  // `next`: per choice, the tokens that are with the client; nothing new of those not named.
  // Returns the bytes that this frees.
  size_t acknowledge(Session& session, Job& job, const std::vector<uint32_t>& next);
  // Sets the cursors of all choices (0 where none is named); what was sent beyond is forgotten.
  void rewind(Session& session, Job& job, const std::vector<uint32_t>& next);

 private:
  void forget_unacked(Session& session, Job& job);

  Limits limits_;
  std::map<SessionId, Session> sessions_;
  std::map<std::string, SessionId> tokens_;
  std::map<ActorId, SessionId> addresses_;
  uint64_t last_id_ = 0;
};

}  // namespace baton
