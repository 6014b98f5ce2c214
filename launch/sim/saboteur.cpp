#include "launch/sim/saboteur.h"

namespace baton {

// A context that lets mail through only as the saboteur wants it.
class Saboteur::Voice final : public Context {
 public:
  Voice(Context& inner, const Change& says) : inner_(inner), says_(says) {}
  ActorId self() const override { return inner_.self(); }
  Micros now() const override { return inner_.now(); }
  uint64_t random() override { return inner_.random(); }
  TimerId set_timer(Micros delay, uint32_t purpose, uint64_t key) override {
    return inner_.set_timer(delay, purpose, key);
  }
  void cancel_timer(TimerId id) override { inner_.cancel_timer(id); }
  void post(Mail mail) override {
    if (!says_ || says_(mail)) inner_.post(std::move(mail));
  }

 private:
  Context& inner_;
  const Change& says_;
};

void Saboteur::start(Context& context) {
  Voice voice(context, says_);
  actor_->start(voice);
}

bool Saboteur::receive(Context& context, const Mail& mail) {
  Voice voice(context, says_);
  if (!hears_) return actor_->receive(voice, mail);
  Mail changed = mail;
  return !hears_(changed) || actor_->receive(voice, changed);
}

}  // namespace baton
