#pragma once

#include <cstdint>
#include <string>

#include "actors/protocol/worker.h"
#include "runtime/actor/context.h"
#include "runtime/base/limits.h"

namespace baton {

// Purposes of a worker's timers.
enum class WorkerTimer : uint32_t { join = 1, beat = 2, earlier_life = 3 };

struct JoiningOptions {
  Limits limits;
  ActorId scheduler;  // {rank, slot, kAnyIncarnation}: whoever lives there
  Register registration;
};

// A worker's membership: asks the scheduler to be taken in until it says Welcome, then beats from
// the loop's own timer, and ends the life (ActorBroken) when the scheduler says that it was
// declared dead or when the timer shows that the process was stopped for longer than that takes. A
// scheduler that does not answer changes nothing: the worker goes on with what it has. A prefill or
// decode actor owns one; owner thread only.
class Joining {
 public:
  explicit Joining(JoiningOptions options);

  void start(Context& context);
  // True if the timer is `join` or `beat`. `load` is what the next beat says; seq and echo are
  // filled in here. Throws ActorBroken after a pause that others must take for death.
  bool on_timer(Context& context, const Timer& timer, const Beat& load);
  void on_welcome(Context& context, const Welcome& message);
  void on_refused(Context& context, const Refused& message);  // throws ActorBroken if stale
  void on_beat_ack(Context& context, const BeatAck& message);

  void on_drain() { draining_ = true; }
  // Says Drained, once, when the worker was asked to drain and nothing is left.
  void finish_drain(Context& context, bool nothing_left);

  bool joined() const { return joined_; }
  bool draining() const { return draining_; }
  const ActorId& scheduler() const { return options_.scheduler; }
  uint64_t boot_epoch() const { return boot_epoch_; }
  // When the scheduler was last heard to be alive; the start of this life at first.
  Micros heard_us() const { return heard_us_; }
  // Why the scheduler does not take this worker in; empty if it never said so.
  const std::string& refusal() const { return refusal_; }

 private:
  void ask(Context& context);
  void beat(Context& context, const Beat& load);

  const JoiningOptions options_;
  bool joined_ = false;
  bool draining_ = false;
  bool drained_ = false;
  uint64_t boot_epoch_ = 0;
  uint64_t seq_ = 0;
  uint64_t acked_ = 0;
  Micros ask_again_us_ = 0;  // pause before the next Register
  Micros beat_us_ = 0;       // when the timer last fired
  Micros heard_us_ = 0;
  std::string refusal_;
};

}  // namespace baton
