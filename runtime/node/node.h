#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "runtime/actor/control_link.h"
#include "runtime/actor/mailbox.h"
#include "runtime/actor/supervisor.h"
#include "runtime/actor/wire.h"
#include "runtime/actor/workers.h"

namespace baton {

struct NodeOptions {
  uint32_t rank = 0;
  size_t worker_threads = 1;
  size_t worker_queue_max = 1024;
  uint64_t random_seed = 0;  // 0: from the system
  Limits limits;
};

struct NodeCounts {
  SupervisorCounts actors;
  uint64_t slow_handlers = 0;  // took more than 1 ms of the loop
  int64_t slowest_handler_us = 0;
  uint64_t refused_full = 0;  // mail that a full mailbox did not take
  uint64_t unroutable = 0;    // for a rank, or for clients, when there is no road to them
};

// Hosts the actors of one rank on one thread: the one that calls run(). Mail, timers, the worker
// pool and the roads to other ranks and to clients meet here. Set it up before run(); after that
// only what is marked thread-safe may be called from elsewhere.
class Node {
 public:
  explicit Node(const NodeOptions& options);
  // Joins the worker pool, then ends the actors.
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // `incarnation` must differ from those of earlier processes with this rank, and grow.
  void add_actor(uint32_t slot, uint32_t incarnation, ActorFactory factory);
  // The road to other ranks; must outlive run(). Without one there are no other ranks.
  void set_control_link(ControlLink* link);
  // Takes mail for (kClientRank, session); called on the loop.
  void set_client_sink(std::function<void(Mail)> sink);
  // An actor used up its restarts. Called on the loop; the rank should end.
  void set_escalation(std::function<void(const ActorId&, const std::string&)> escalate);

  // Starts the actors and serves them until stop().
  void run();
  // thread-safe
  void stop();

  // Routes mail: to an actor of this rank, another rank, or a client. `full` and `closed` concern
  // actors of this rank; a sender other than a client hears of them by Undeliverable too.
  // thread-safe
  Pushed post(Mail mail);
  // Runs a function on the loop. thread-safe
  void run_on_loop(std::function<void()> task);
  // Runs a function on the loop, later. Loop thread only.
  void run_after(Micros delay, std::function<void()> task);
  // Posts a message to every actor of this rank. thread-safe
  template <Message M>
  void tell_all(const M& message) {
    post_to_all(M::kind, encode_body(message));
  }

  // thread-safe
  Micros now() const;
  Workers& workers();
  uint32_t rank() const;
  // Loop thread only (or after run()).
  NodeCounts counts() const;

 private:
  friend struct NodeIo;
  struct Impl;
  void post_to_all(MsgKind kind, const std::string& body);

  std::unique_ptr<Impl> impl_;
};

}  // namespace baton
