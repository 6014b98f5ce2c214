#pragma once

#include <concepts>
#include <stdexcept>
#include <string>

#include "runtime/actor/context.h"
#include "runtime/actor/message.h"
#include "runtime/actor/wire.h"
#include "runtime/base/limits.h"

namespace baton {

// Thrown by a handler whose actor must start over (a broken invariant it can name, or a life that
// others have declared over). The runtime destroys the actor, raises its incarnation and rebuilds
// it from its factory.
class ActorBroken : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Something with state that only its mail changes. The node or the simulator owns it and calls it
// from one thread; it holds no lock and never blocks.
class Actor {
 public:
  virtual ~Actor() = default;

  // Called once before any mail.
  virtual void start(Context&) {}
  // Handles one message. False: not a message of this actor, or a body that does not decode; the
  // runtime counts and drops it. May throw only when the actor is broken: it is then rebuilt.
  virtual bool receive(Context& context, const Mail& mail) = 0;
};

template <class D, class M>
concept Handles = requires(D& actor, Context& context, const Envelope& from, M& message) {
  actor.on(context, from, message);
};

// Dispatches mail to `void on(Context&, const Envelope&, M&)` of Derived, for each M of the list.
// A handler that is missing fails to compile.
template <class Derived, class List>
class ActorOf;

template <class Derived, Message... Ms>
class ActorOf<Derived, MessageList<Ms...>> : public Actor {
 public:
  bool receive(Context& context, const Mail& mail) final {
    static_assert((Handles<Derived, Ms> && ...),
                  "the actor lacks on(Context&, const Envelope&, M&) for a message of its list");
    return (try_one<Ms>(context, mail) || ...);
  }

 protected:
  // A message of this actor whose body does not decode; it is dropped after this. For those that
  // owe the sender an answer.
  virtual void undecodable(Context&, const Envelope&, const Error&) {}

 private:
  template <Message M>
  bool try_one(Context& context, const Mail& mail) {
    if (mail.envelope.kind != M::kind) return false;
    Result<M> message = decode_body<M>(mail.body, limits_);
    if (!message.ok()) {
      undecodable(context, mail.envelope, message.error());
      return false;
    }
    static_cast<Derived*>(this)->on(context, mail.envelope, *message);
    return true;
  }

  Limits limits_;
};

}  // namespace baton
