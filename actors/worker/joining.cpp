#include "actors/worker/joining.h"

#include <algorithm>
#include <utility>

#include "runtime/actor/actor.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

constexpr Micros kFirstPause = 100 * kMillisecond;
constexpr Micros kLongestPause = 5 * kSecond;

constexpr uint32_t purpose_of(WorkerTimer timer) {
  return static_cast<uint32_t>(timer);
}

}  // namespace

Joining::Joining(JoiningOptions options)
    : options_(std::move(options)), ask_again_us_(kFirstPause) {}

void Joining::start(Context& context) {
  heard_us_ = context.now();
  ask(context);
}

void Joining::ask(Context& context) {
  context.send(options_.scheduler, options_.registration);
  context.set_timer(ask_again_us_, purpose_of(WorkerTimer::join));
  ask_again_us_ = std::min(ask_again_us_ * 2, kLongestPause);
}

bool Joining::on_timer(Context& context, const Timer& timer, const Beat& load) {
  if (timer.purpose == purpose_of(WorkerTimer::join)) {
    if (!joined_) ask(context);
    return true;
  }
  if (timer.purpose != purpose_of(WorkerTimer::beat)) return false;
  beat(context, load);
  return true;
}

void Joining::beat(Context& context, const Beat& load) {
  const Limits& limits = options_.limits;
  const Micros gap = context.now() - beat_us_;
  if (gap > limits.beats_missed_max * limits.beat_period_us) {
    throw ActorBroken("no beat for " + std::to_string(gap / kMillisecond) + " ms (period " +
                      std::to_string(limits.beat_period_us / kMillisecond) +
                      " ms): this process was stopped and must be taken for dead");
  }
  beat_us_ = context.now();
  Beat message = load;
  message.seq = ++seq_;
  message.echo = acked_;
  context.send(options_.scheduler, message);
  context.set_timer(limits.beat_period_us, purpose_of(WorkerTimer::beat));
}

void Joining::on_welcome(Context& context, const Welcome& message) {
  heard_us_ = context.now();
  boot_epoch_ = message.boot_epoch;
  if (joined_) return;
  joined_ = true;
  refusal_.clear();
  beat_us_ = context.now();
  context.set_timer(0, purpose_of(WorkerTimer::beat));
}

void Joining::on_refused(Context& context, const Refused& message) {
  if (message.refusal.code == ErrorCode::stale) {
    throw ActorBroken("the scheduler has ended this life: " + message.refusal.text);
  }
  heard_us_ = context.now();
  ask_again_us_ = kLongestPause;
  if (refusal_ == message.refusal.text) return;
  refusal_ = message.refusal.text;
  log_error("the scheduler does not take this " +
            std::string(role_name(options_.registration.role)) + " worker in: " + refusal_);
}

void Joining::on_beat_ack(Context& context, const BeatAck& message) {
  heard_us_ = context.now();
  acked_ = std::max(acked_, std::min(message.seq, seq_));
}

void Joining::finish_drain(Context& context, bool nothing_left) {
  if (!draining_ || drained_ || !nothing_left) return;
  drained_ = true;
  context.send(options_.scheduler, Drained{});
}

}  // namespace baton
