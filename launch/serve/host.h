#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "actors/protocol/scheduler.h"
#include "launch/serve/topology.h"
#include "runtime/actor/actor.h"
#include "runtime/actor/control_link.h"

namespace baton {

inline constexpr uint32_t kHostSlot = 5;

// Signal handler -> host of its rank: end in order; a second one: end now.
struct StopAsked {
  static constexpr MsgKind kind = MsgKind::stop_asked;
  int32_t signal = 0;
  BATON_FIELDS(signal)
};

// Host of the control rank -> hosts of the others: leave.
struct Stop {
  static constexpr MsgKind kind = MsgKind::stop;
  bool now = true;
  BATON_FIELDS(now)
};

struct HostOptions {
  Topology topology;
  uint32_t rank = 0;
  Limits limits;
  ActorId scheduler{0, kSchedulerSlot, kAnyIncarnation};
  // Called once, on the control rank, when all workers have joined.
  std::function<void(const ClusterReply&)> ready;
  // Ends the loop of this rank with this exit status.
  std::function<void(int status)> leave;
};

using HostMessages = MessageList<ClusterReply, Drained, StopAsked, Stop, LinkUp, LinkDown,
                                 ActorDown, Undeliverable, Timer>;

// Looks after the process of one rank: says when the cluster is ready, ends it in order on a signal
// (no new requests, running ones finish within the drain time, then every rank leaves), and takes a
// worker rank away when its control rank has been gone for good. Loop thread.
class Host final : public ActorOf<Host, HostMessages> {
 public:
  explicit Host(HostOptions options) : options_(std::move(options)) {}

  void start(Context& context) override;
  void on(Context& context, const Envelope& from, ClusterReply& reply);
  void on(Context& context, const Envelope& from, Drained& message);
  void on(Context& context, const Envelope& from, StopAsked& message);
  void on(Context& context, const Envelope& from, Stop& message);
  void on(Context& context, const Envelope& from, LinkUp& message);
  void on(Context& context, const Envelope& from, LinkDown& message);
  void on(Context& context, const Envelope& from, ActorDown& message);
  void on(Context&, const Envelope&, Undeliverable&) {}
  void on(Context& context, const Envelope& from, Timer& timer);

 private:
  bool control() const { return options_.rank == 0; }
  void ask(Context& context);
  void stop_all(Context& context);

  const HostOptions options_;
  bool ready_ = false;
  bool draining_ = false;
  TimerId orphan_timer_{};
  bool orphan_armed_ = false;
};

}  // namespace baton
