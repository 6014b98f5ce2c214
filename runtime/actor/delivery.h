#pragma once

#include "runtime/actor/message.h"

// How the runtime treats each kind of message, in the node and in the simulator alike.

namespace baton {

// Mail of the control lane is handled before mail of the work lane; within a lane, in order.
enum class Lane : uint8_t { control, work };

struct Delivery {
  Lane lane = Lane::work;
  // Begins something new, so a full mailbox may refuse it. Everything else is a consequence of
  // what was accepted and is bounded by that: it is never refused.
  bool refusable = false;
  // The sender waits for a reaction: it hears Undeliverable when nobody is there.
  bool bounces = false;
};

Delivery delivery_of(MsgKind kind) noexcept;

}  // namespace baton
