#include "actors/decode/decode.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr size_t kCancelledMax = 4096;  // requests whose Cancel is remembered
constexpr size_t kWithdrawnMax = 1024;  // transfers whose withdrawn pieces are remembered

uint32_t step_tokens_of(const DecodeOptions& options) {
  return std::min<uint32_t>(options.engine->step_tokens_max(),
                            static_cast<uint32_t>(options.limits.batched_tokens_max));
}

JoiningOptions joining_options(const DecodeOptions& options) {
  const Engine& engine = *options.engine;
  Register registration;
  registration.role = Role::decode;
  registration.instance = options.instance;
  registration.host = options.host;
  registration.cores = options.cores;
  registration.numerics_id = engine.numerics_id();
  registration.model_hash = engine.model_hash();
  registration.weights_version = options.weights_version;
  registration.geometry = engine.geometry();
  registration.capacity = {.slots = static_cast<uint32_t>(options.limits.decode_slots),
                           .blocks = engine.block_count(),
                           .context_max = engine.context_max(),
                           .step_tokens = step_tokens_of(options)};
  return {options.limits, options.scheduler, registration};
}

}  // namespace

Decode::Decode(DecodeOptions options)
    : options_(std::move(options)),
      engine_(*options_.engine),
      mover_(*options_.mover),
      pool_(engine_.block_count()),
      joining_(joining_options(options_)),
      cancelled_(kCancelledMax),
      withdrawn_(kWithdrawnMax),
      slots_(static_cast<uint32_t>(options_.limits.decode_slots)),
      sequences_(options_.limits.decode_slots),
      retained_(options_.limits.live_requests_max),
      step_tokens_max_(step_tokens_of(options_)) {
  CHECK(slots_.size() > 0);
  CHECK(step_tokens_max_ > 0);
  CHECK(options_.catch_up_tokens > 0);
  CHECK(options_.min_decode_steps > 0);
}

// A life may end at any moment; the receives that it posted end with it. The mover still names the
// blocks that may be written, and the next life keeps away from them.
Decode::~Decode() {
  for (const auto& [transfer, incoming] : incoming_) {
    if (incoming.pieces_open() > 0) mover_.cancel(transfer);
  }
}

void Decode::start(Context& context) {
  join(context);
}

// Nothing begins before an earlier life has ended.
void Decode::join(Context& context) {
  if (earlier_.ended(context, engine_, pool_, mover_)) joining_.start(context);
}

void Decode::on(Context& context, const Envelope&, Welcome& message) {
  joining_.on_welcome(context, message);
}

void Decode::on(Context& context, const Envelope&, Refused& message) {
  joining_.on_refused(context, message);
}

void Decode::on(Context& context, const Envelope&, BeatAck& message) {
  joining_.on_beat_ack(context, message);
}

void Decode::on(Context& context, const Envelope&, Drain&) {
  joining_.on_drain();
  settle(context);
}

void Decode::on(Context& context, const Envelope&, Timer& timer) {
  if (timer.purpose == static_cast<uint32_t>(WorkerTimer::earlier_life)) return join(context);
  if (joining_.on_timer(context, timer, load())) sweep(context);
}

uint32_t Decode::running() const {
  return static_cast<uint32_t>(std::count_if(sequences_.begin(), sequences_.end(),
                                             [](const auto& s) { return s.has_value(); }));
}

Beat Decode::load() const {
  Beat beat;
  beat.step = counters_.steps;
  beat.slots_free = slots_.free();
  beat.blocks_free = pool_.free();
  beat.blocks_quarantined = quarantined_blocks();
  beat.queued = static_cast<uint32_t>(incoming_.size());
  beat.running = running();
  const DecodeCounters& c = counters_;
  beat.counters = {{"tokens", c.tokens},
                   {"step_rows", c.step_rows},
                   {"slots_idle", c.slot_steps - std::min(c.slot_steps, c.step_rows)},
                   {"overshoot", c.overshoot},
                   {"discarded", c.discarded},
                   {"caught_up", c.caught_up},
                   {"copied_blocks", c.copied_blocks},
                   {"preempted", c.preempted},
                   {"set_aside", c.set_aside},
                   {"paused", c.paused}};
  return beat;
}

uint32_t Decode::quarantined_blocks() const {
  size_t blocks = earlier_.blocks();
  for (const auto& [transfer, incoming] : incoming_) {
    if (incoming.closing) blocks += incoming.blocks.size();
  }
  return static_cast<uint32_t>(blocks);
}

void Decode::on(Context& context, const Envelope& from, Cancel&) {
  cancelled_.note(from.request, from.epoch);
  end_lives(context, from.request, from.epoch);
  uint32_t pending = 0;
  for (const auto& [transfer, incoming] : incoming_) {
    if (incoming.request == from.request && incoming.epoch <= from.epoch) {
      pending += incoming.pieces_open();
    }
  }
  context.send(joining_.scheduler(), Cancelled{pending},
               {from.request, from.epoch, from.correlation, kNever});
  settle(context);
}

// Whatever is here of the request's lives up to `epoch` ends.
void Decode::end_lives(Context& context, RequestId request, Epoch epoch) {
  for (auto place = incoming_.begin(); place != incoming_.end();) {
    const auto current = place++;
    const Incoming& incoming = current->second;
    if (incoming.request == request && incoming.epoch <= epoch) close(context, current);
  }
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const std::optional<Sequence>& sequence = sequences_[slot];
    if (!sequence || sequence->request != request || sequence->epoch > epoch) continue;
    end(context, slot, Finish::cancelled);
  }
  retained_.drop(request, epoch);
}

// Whose prefill worker is gone will not be completed: the reservation ends.
void Decode::lose_dead_sources(Context& context) {
  for (auto place = incoming_.begin(); place != incoming_.end();) {
    const auto current = place++;
    if (!dead_.covers(current->second.source)) continue;
    fail_transfer(context, current,
                  {ErrorCode::worker_lost, "the prefill worker of the request is gone", 0});
  }
  settle(context);
}

// Actors of this very process are ActorDown's business: the process has not gone along.
void Decode::on(Context& context, const Envelope&, PeerDown& message) {
  if (message.rank == context.self().rank) return;
  mover_.peer_down(message.rank, message.incarnation);
  dead_.note_rank(message.rank, message.incarnation);
  lose_dead_sources(context);
}

void Decode::on(Context& context, const Envelope&, ActorDown& message) {
  dead_.note_actor(message.actor);
  lose_dead_sources(context);
}

void Decode::on(Context& context, const Envelope& from, TokensAck& message) {
  if (retained_.ack(from.request, message.choice, from.epoch, message.next) ==
      Retained::Ack::unknown) {
    ++counters_.stale;
    return;
  }
  const auto slot = slot_of(from.request, message.choice, from.epoch);
  if (message.ended && slot) {
    retained_.drop(from.request, message.choice, from.epoch);
    end(context, *slot, Finish::stop);
  }
  settle(context);  // a slot that had paused may go on
}

void Decode::on(Context& context, const Envelope& from, Resend& message) {
  Tokens again{retained_.from(from.request, message.choice, from.epoch, message.next)};
  if (again.entries.empty()) {
    ++counters_.stale;
    return;
  }
  context.send(from.from, again, {from.request, from.epoch, from.correlation, kNever});
}

// Time as the last resort: whatever message was lost, nothing is held for ever.
void Decode::sweep(Context& context) {
  earlier_.sweep(mover_);
  check_quarantine(quarantined_blocks(), options_.limits);
  expire_reservations(context);
  retained_.drop_ended(context.now() - options_.limits.lease_us);
  settle(context);
}

// While the scheduler is heard, it minds its reservations itself: a prompt may queue for long.
void Decode::expire_reservations(Context& context) {
  for (auto place = incoming_.begin(); place != incoming_.end();) {
    const auto current = place++;
    const Incoming& incoming = current->second;
    const Micros last_sign = std::max(incoming.progress_us, joining_.heard_us());
    if (incoming.closing || context.now() - last_sign <= options_.limits.lease_us) continue;
    ++counters_.leases_expired;
    fail_transfer(context, current,
                  {ErrorCode::deadline_exceeded,
                   "the reservation made no progress, and the scheduler was not heard, for " +
                       std::to_string(options_.limits.lease_us / kMillisecond) + " ms",
                   0});
  }
}

void Decode::settle(Context& context) {
  pump(context);
  joining_.finish_drain(
      context, incoming_.empty() && running() == 0 && after_step_.empty() && retained_.size() == 0);
}

}  // namespace baton
