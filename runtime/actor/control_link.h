#pragma once

#include "runtime/actor/message.h"

namespace baton {

// The way to the actors of other ranks: a reliable, ordered session per pair of processes.
// Owner thread only. What arrives is handed to the node, which delivers it.
class ControlLink {
 public:
  virtual ~ControlLink() = default;

  // Queues mail for the rank that `mail.envelope.to` names. A session that breaks, or a full
  // queue, is reported as LinkDown to the rank's actors; nothing is lost in silence.
  virtual void send(Mail mail) = 0;
  // Forgets a peer's life and its unacknowledged mail: it is dead or fenced.
  virtual void forget(uint32_t rank) = 0;
};

// A session with another rank was made, or ended. Delivered to the actors of this rank.
struct LinkUp {
  static constexpr MsgKind kind = MsgKind::link_up;
  uint32_t rank = 0;
  uint32_t incarnation = 0;
  BATON_FIELDS(rank, incarnation)
};

// `certain`: the peer's socket closed (its process is probably gone), or resending gave up.
// A hint: the scheduler probes before it declares a rank dead.
struct LinkDown {
  static constexpr MsgKind kind = MsgKind::link_down;
  uint32_t rank = 0;
  uint32_t incarnation = 0;
  bool certain = false;
  std::string reason;
  BATON_FIELDS(rank, incarnation, certain, reason)
};

// Mail that found no actor (wrong slot, or an incarnation that has ended), or a full mailbox. The
// envelope carries the request, epoch and correlation of the mail that came back.
struct Undeliverable {
  static constexpr MsgKind kind = MsgKind::undeliverable;
  ActorId target;
  uint16_t message_kind = 0;
  bool full = false;  // somebody is there, but busy: try again later
  BATON_FIELDS(target, message_kind, full)
};

// An actor of this rank threw and was rebuilt under the next incarnation.
struct ActorDown {
  static constexpr MsgKind kind = MsgKind::actor_down;
  ActorId actor;
  std::string reason;
  BATON_FIELDS(actor, reason)
};

}  // namespace baton
