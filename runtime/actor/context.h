#pragma once

#include <cstdint>
#include <utility>

#include "runtime/actor/message.h"
#include "runtime/actor/wire.h"
#include "runtime/base/time.h"

namespace baton {

// Where a message belongs, beside its fields; copied into the envelope.
struct Routing {
  RequestId request = {};
  Epoch epoch = {};
  uint64_t correlation = 0;
  Micros remaining_us = kNever;
};

// All that is not determined by an actor's state and its mail: time, randomness, timers, sending.
// One per actor; owner thread only. The node implements it over Asio, the simulator over its
// virtual clock, so an actor behaves the same in both.
class Context {
 public:
  virtual ~Context() = default;

  virtual ActorId self() const = 0;
  // Microseconds, steady, never going back.
  virtual Micros now() const = 0;
  virtual uint64_t random() = 0;

  // Delivers Timer{id, purpose, key} to this actor after `delay` microseconds, once.
  virtual TimerId set_timer(Micros delay, uint32_t purpose, uint64_t key = 0) = 0;
  // A cancelled timer is never delivered; an unknown or fired id is ignored.
  virtual void cancel_timer(TimerId id) = 0;

  // Hands mail to the runtime. Never blocks, never fails: what cannot be delivered comes back as
  // Undeliverable, or its link goes down.
  virtual void post(Mail mail) = 0;

  // Encodes and posts a message. Local targets are encoded too: one path, no aliasing.
  template <Message M>
  void send(ActorId to, const M& message, const Routing& routing = {}) {
    Mail mail;
    mail.envelope.kind = M::kind;
    mail.envelope.from = self();
    mail.envelope.to = to;
    mail.envelope.request = routing.request;
    mail.envelope.epoch = routing.epoch;
    mail.envelope.correlation = routing.correlation;
    mail.envelope.remaining_us = routing.remaining_us;
    mail.body = encode_body(message);
    post(std::move(mail));
  }
};

// What set_timer() delivers.
struct Timer {
  static constexpr MsgKind kind = MsgKind::timer;
  TimerId id;
  uint32_t purpose = 0;
  uint64_t key = 0;
  BATON_FIELDS(id, purpose, key)
};

}  // namespace baton
