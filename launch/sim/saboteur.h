#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "runtime/actor/actor.h"

namespace baton {

// Stands between the runtime and an actor and changes what it hears and says: how the harness
// breaks an actor from outside. Owns the actor.
class Saboteur final : public Actor {
 public:
  // May change the mail; false loses it. Either may be empty.
  using Change = std::function<bool(Mail&)>;

  Saboteur(std::unique_ptr<Actor> actor, Change hears, Change says)
      : actor_(std::move(actor)), hears_(std::move(hears)), says_(std::move(says)) {}

  void start(Context& context) override;
  bool receive(Context& context, const Mail& mail) override;

 private:
  class Voice;
  std::unique_ptr<Actor> actor_;
  Change hears_;
  Change says_;
};

}  // namespace baton
