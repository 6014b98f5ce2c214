#include "actors/prefill/prefill.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr size_t kCancelledMax = 4096;  // requests whose Cancel is remembered

uint32_t step_tokens_of(const PrefillOptions& options) {
  return std::min<uint32_t>(options.engine->step_tokens_max(),
                            static_cast<uint32_t>(options.limits.batched_tokens_max));
}

JoiningOptions joining_options(const PrefillOptions& options, const ServedWeights& weights) {
  const Engine& engine = *options.engine;
  Register registration;
  registration.role = Role::prefill;
  registration.instance = options.instance;
  registration.host = options.host;
  registration.cores = options.cores;
  registration.numerics_id = engine.numerics_id();
  registration.model_hash = engine.model_hash();
  registration.weights_version = weights.latest();
  registration.weights = weights.committed();
  registration.geometry = engine.geometry();
  registration.placement = engine.placement();
  registration.capacity = {.slots = 0,
                           .blocks = engine.block_count(),
                           .context_max = engine.context_max(),
                           .step_tokens = step_tokens_of(options)};
  return {options.limits, options.scheduler, registration};
}

PackOptions pack_options(const PrefillOptions& options) {
  const uint32_t context_max = options.engine->context_max();
  PackOptions pack;
  pack.policy = options.pack_policy;
  pack.prefill_lengths =
      options.prefill_lengths.empty() ? auto_prefill_lengths(context_max) : options.prefill_lengths;
  if (const auto checked = check_prefill_lengths(pack.prefill_lengths, context_max); !checked) {
    throw ActorBroken(checked.error().text);
  }
  pack.step_tokens_max = step_tokens_of(options);
  if (pack.step_tokens_max < 2) throw ActorBroken("an engine step must take 2 tokens or more");
  pack.prompts_max = options.limits.prompts_per_pack_max;
  pack.age_max_us = options.limits.pack_age_max_us;
  return pack;
}

}  // namespace

Prefill::Prefill(PrefillOptions options)
    : options_(std::move(options)),
      engine_(*options_.engine),
      mover_(*options_.mover),
      pool_(engine_.block_count()),
      cache_(pool_, pool_.size()),
      weights_(engine_),
      joining_(joining_options(options_, weights_)),
      plans_(engine_.placement(), KvDirection::send),
      cancelled_(kCancelledMax),
      packer_(pack_options(options_)) {}

// A life may end at any moment; what it had under way ends with it. The mover still names the
// blocks that are touched, and the next life keeps away from them.
Prefill::~Prefill() {
  for (const auto& [transfer, job] : jobs_) {
    if (job.pieces_pending > 0) mover_.cancel(transfer);
  }
}

void Prefill::start(Context& context) {
  join(context);
}

// Nothing begins before an earlier life has ended.
void Prefill::join(Context& context) {
  if (earlier_.ended(context, engine_, pool_, mover_)) joining_.start(context);
}

void Prefill::on(Context& context, const Envelope& from, Cancel&) {
  cancelled_.note(from.request, from.epoch);
  close_lives(from.request, from.epoch);
  uint32_t pending = 0;
  for (const auto& [transfer, job] : jobs_) {
    if (job.request == from.request && job.epoch <= from.epoch) pending += job.pieces_pending;
  }
  context.send(joining_.scheduler(), Cancelled{pending},
               {from.request, from.epoch, from.correlation, kNever});
  settle(context);
}

void Prefill::close_lives(RequestId request, Epoch epoch) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const bool meant = job->second.request == request && job->second.epoch <= epoch;
    job = meant ? close(job) : std::next(job);
  }
}

Prefill::Jobs::iterator Prefill::close(Jobs::iterator place) {
  PrefillJob& job = place->second;
  if (job.phase == JobPhase::waiting) {
    if (!packer_.remove(place->first.value)) std::erase(pack_, place->first);
  } else if (job.phase == JobPhase::computing) {
    std::erase(pack_, place->first);
  }
  if (job.phase != JobPhase::closing && job.pieces_pending > 0) mover_.cancel(place->first);
  job.phase = JobPhase::closing;
  return job.over() ? jobs_.erase(place) : std::next(place);
}

void Prefill::fail(Context& context, Jobs::iterator job, Refusal refusal, bool retryable) {
  ++counters_.failed;
  context.send(joining_.scheduler(), PrefillFailed{job->first, std::move(refusal), retryable},
               {job->second.request, job->second.epoch, 0, kNever});
  close(job);
}

// The job that a peer speaks of, if the peer means the life that is here; otherwise null.
PrefillJob* Prefill::find(TransferId transfer, const Envelope& from) {
  const auto found = jobs_.find(transfer);
  if (found != jobs_.end() && found->second.epoch == from.epoch &&
      found->second.run.target == from.from) {
    return &found->second;
  }
  ++counters_.stale;
  return nullptr;
}

// All pieces are there: sends that have not ended yet are about to, and need no cancelling.
void Prefill::on(Context& context, const Envelope& from, Adopted& message) {
  PrefillJob* job = find(message.transfer, from);
  if (!job) return;
  job->phase = JobPhase::closing;
  close(jobs_.find(message.transfer));
  settle(context);
}

void Prefill::on(Context& context, const Envelope& from, AdoptFailed& message) {
  if (!find(message.transfer, from)) return;
  close(jobs_.find(message.transfer));
  settle(context);
}

void Prefill::on(Context& context, const Envelope& from, KvNack& message) {
  if (!find(message.transfer, from)) return;
  close(jobs_.find(message.transfer));
  settle(context);
}

// Only Adopted ends the hold: pieces that have arrived may still turn out to be useless.
void Prefill::on(Context&, const Envelope& from, KvDone& message) {
  find(message.transfer, from);
}

void Prefill::on(Context& context, const Envelope& from, Resend& message) {
  for (const auto& [transfer, job] : jobs_) {
    const bool has_first = job.phase == JobPhase::handing || job.phase == JobPhase::sending;
    if (job.request != from.request || job.epoch != from.epoch || !has_first) continue;
    for (const TokenEntry& first : job.first) {
      if (message.choice != first.choice || message.next > first.seq || !first.has_token) continue;
      context.send(job.run.gateway, Tokens{{first}}, {job.request, job.epoch, 0, kNever});
    }
  }
}

void Prefill::on(Context& context, const Envelope&, KvSent& message) {
  const auto found = jobs_.find(message.transfer);
  if (found == jobs_.end()) return;
  PrefillJob& job = found->second;
  CHECK(job.pieces_pending > 0);
  --job.pieces_pending;
  if (job.phase == JobPhase::closing) {
    if (job.over()) jobs_.erase(found);
  } else if (!message.ok) {
    const Refusal refusal{ErrorCode::worker_lost, "the piece was not sent: " + message.reason, 0};
    context.send(job.run.target, KvNack{message.transfer, message.piece, refusal},
                 {job.request, job.epoch, 0, kNever});
    fail(context, found, refusal, true);
  }
  settle(context);
}

// Whose decode worker is gone will not be adopted: the job ends.
void Prefill::lose_dead_targets(Context& context) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto current = job++;
    const PrefillJob& lost = current->second;
    if (lost.phase == JobPhase::closing || !dead_.covers(lost.run.target)) continue;
    fail(context, current, {ErrorCode::worker_lost, "the decode worker of the request is gone", 0},
         true);
  }
  settle(context);
}

// Actors of this very process are ActorDown's business: the process has not gone along.
void Prefill::on(Context& context, const Envelope&, PeerDown& message) {
  if (message.rank == context.self().rank) return;
  mover_.peer_down(message.rank, message.incarnation);
  dead_.note_rank(message.rank, message.incarnation);
  lose_dead_targets(context);
}

void Prefill::on(Context& context, const Envelope&, ActorDown& message) {
  dead_.note_actor(message.actor);
  lose_dead_targets(context);
}

// Nobody is there for a hand-off. Its pieces end with the PeerDown that follows.
void Prefill::on(Context& context, const Envelope&, Undeliverable& message) {
  const bool hand_over = message.message_kind == static_cast<uint16_t>(MsgKind::kv_post) ||
                         message.message_kind == static_cast<uint16_t>(MsgKind::adopt);
  if (!hand_over || message.full) return;
  dead_.note_actor(message.target);
  lose_dead_targets(context);
}

void Prefill::on(Context& context, const Envelope&, Welcome& message) {
  joining_.on_welcome(context, message);
}

void Prefill::on(Context& context, const Envelope&, Refused& message) {
  joining_.on_refused(context, message);
}

void Prefill::on(Context& context, const Envelope& from, Connect& message) {
  plans_.connect(context, from, message, mover_);
}

void Prefill::on(Context& context, const Envelope&, BeatAck& message) {
  joining_.on_beat_ack(context, message);
}

void Prefill::on(Context& context, const Envelope&, WeightsPrepare& message) {
  weights_.on_prepare(context, message);
}

void Prefill::on(Context& context, const Envelope&, WeightsPrepared& message) {
  weights_.on_prepared(context, joining_.scheduler(), message);
}

void Prefill::on(Context& context, const Envelope&, WeightsCommit& message) {
  weights_.on_commit(context, joining_.scheduler(), message);
}

void Prefill::on(Context&, const Envelope&, WeightsAbort& message) {
  weights_.on_abort(message);
}

void Prefill::on(Context& context, const Envelope&, WeightsDrop& message) {
  weights_.on_drop(message);
  settle(context);
}

void Prefill::on(Context& context, const Envelope&, Drain&) {
  joining_.on_drain();
  packer_.flush();
  settle(context);
}

void Prefill::on(Context& context, const Envelope&, Timer& timer) {
  if (timer.purpose == static_cast<uint32_t>(WorkerTimer::earlier_life)) return join(context);
  if (joining_.on_timer(context, timer, load())) sweep(context);
}

Beat Prefill::load() const {
  Beat beat;
  beat.step = counters_.steps;
  beat.blocks_free = cache_.available();
  beat.blocks_cached = cache_.blocks();
  beat.blocks_quarantined = quarantined_blocks();
  for (const auto& [transfer, job] : jobs_) {
    if (job.phase == JobPhase::waiting) ++beat.queued;
    if (job.phase == JobPhase::computing) ++beat.running;
  }
  const PrefillCounters& c = counters_;
  const auto packs = [&](FlushReason reason) { return c.packs[static_cast<size_t>(reason)]; };
  beat.counters = {{"step_tokens", c.step_tokens},
                   {"step_room", c.capacity_tokens},  // pack fill is their quotient
                   {"packs_full", packs(FlushReason::full)},
                   {"packs_aged", packs(FlushReason::aged)},
                   {"packs_idle", packs(FlushReason::idle)},
                   {"packs_ending", packs(FlushReason::ending)},
                   {"packs_alone", packs(FlushReason::alone)},
                   {"handed_over", c.handed_over},
                   {"pieces_sent", c.pieces_sent},
                   {"finished_here", c.finished_here},
                   {"cache_asked", c.cache_asked},
                   {"cache_hit", c.cache_hit},
                   {"cache_evicted", cache_.evicted()}};
  return beat;
}

uint32_t Prefill::quarantined_blocks() const {
  size_t blocks = earlier_.blocks();
  for (const auto& [transfer, job] : jobs_) {
    if (job.phase == JobPhase::closing) blocks += job.blocks.size();
  }
  return static_cast<uint32_t>(blocks);
}

// Time as the last resort: whatever message was lost, nothing is held for ever.
void Prefill::sweep(Context& context) {
  earlier_.sweep(mover_);
  check_quarantine(quarantined_blocks(), options_.limits);
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto current = job++;
    PrefillJob& held = current->second;
    if (held.phase == JobPhase::closing || held.hold_until_us > context.now()) continue;
    if (held.pieces_pending > 0 || held.phase == JobPhase::handing) {
      const Refusal late{ErrorCode::deadline_exceeded, "the transfer did not end in time", 0};
      context.send(held.run.target, KvNack{current->first, 0, late},
                   {held.request, held.epoch, 0, kNever});
      fail(context, current, late, true);
    } else {
      close(current);  // all of it has left; only the word that it was adopted is missing
    }
  }
  settle(context);
}

void Prefill::settle(Context& context) {
  retry_handing(context);
  pump(context);
  weights_.settle(context, joining_.scheduler(), [this](uint64_t version) {
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [&](const auto& job) { return job.second.weights == version; });
  });
  joining_.finish_drain(context, jobs_.empty());
}

}  // namespace baton
