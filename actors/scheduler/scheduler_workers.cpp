// The lives of workers and gateways: joining, beats, death.

#include <utility>

#include "actors/scheduler/scheduler.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

std::string life_name(ActorId life) {
  return "rank " + std::to_string(life.rank) + " slot " + std::to_string(life.slot) + " life " +
         std::to_string(life.incarnation);
}

Refused stale_life(ActorId life) {
  return {{ErrorCode::stale,
           life_name(life) + " was declared dead or is not known here: drop all state, begin the "
                             "next life and register it",
           0}};
}

}  // namespace

// True (and counted) if the mail is not from a life that is alive. Also notes that the sender was
// heard of.
bool Scheduler::fence_stale(Context& context, const Envelope& from) {
  if (members_.hear(from.from, awake(context))) return false;
  ++counters_.fenced_messages;
  return true;
}

void Scheduler::on(Context& context, const Envelope& from, Register& message) {
  if (members_.fenced(from.from)) {
    ++counters_.fenced_messages;
    return context.send(from.from, stale_life(from.from));
  }
  const Worker* earlier = members_.at(worker_key(from.from));
  if (earlier && earlier->id.incarnation > from.from.incarnation) {
    ++counters_.fenced_messages;
    return context.send(from.from, stale_life(from.from));
  }
  if (earlier && earlier->id != from.from) {
    bury(context, earlier->id, "its next life has registered");
  }
  if (std::optional<Refusal> fault = weights_.fault(message)) {
    log_warning(life_name(from.from) + " was not taken in: " + fault->text);
    return context.send(from.from, Refused{std::move(*fault)});
  }
  const Membership::JoinResult joined = members_.join(from.from, message, awake(context));
  if (joined.outcome == Membership::Join::refused) {
    log_warning(life_name(from.from) + " was not taken in: " + joined.refusal.text);
    return context.send(from.from, Refused{joined.refusal});
  }
  context.send(from.from, Welcome{options_.boot_epoch});
  if (joined.outcome == Membership::Join::again) return;
  log_info(std::string(role_name(message.role)) + " joined: " + life_name(from.from) + ", " +
           std::to_string(message.capacity.slots) + " slots, " +
           std::to_string(message.capacity.blocks) + " blocks");
  // Transfers of its earlier life may still wait for peers that died while it was not there to hear
  // of it; they hold blocks until it does.
  for (const auto& [place, incarnation] : members_.fences()) {
    context.send(from.from, PeerDown{place.rank, incarnation});
  }
  if (message.role == Role::decode) {
    leases_.join(worker_key(from.from), message.capacity.slots, message.capacity.blocks);
  }
  connect(context, *joined.worker);
  weights_.join(from.from, message);
  follow_weights(context);
  refresh(context, *joined.worker);
  queue_.unpark();
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, Beat& message) {
  Worker* worker = members_.hear(from.from, awake(context));
  if (!worker) {
    ++counters_.fenced_messages;
    return context.send(from.from, stale_life(from.from));
  }
  members_.beat(*worker, message);
  members_.acknowledged(*worker, message.seq, awake(context));
  context.send(from.from, BeatAck{message.seq});
  if (worker->info.role != Role::decode) return;
  leases_.report(worker_key(from.from), message.slots_free, message.blocks_free);
  refresh(context, *worker);
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, Drained&) {
  Worker* worker = members_.hear(from.from, awake(context));
  if (!worker) {
    ++counters_.fenced_messages;
    return;
  }
  worker->drained = true;
  refresh(context, *worker);
  progress_drain(context);
}

void Scheduler::on(Context&, const Envelope&, LinkUp& message) {
  members_.trust(message.rank);
}

// A hint only: a connection may break without its process. Then it is made again, or mail comes,
// within the probe's time.
void Scheduler::on(Context& context, const Envelope&, LinkDown& message) {
  if (message.certain) members_.suspect(message.rank, awake(context));
}

// A new prompt or reservation that came back from a full mailbox is a refusal. Anything that came
// back because the life it was for has ended is the news of that end.
void Scheduler::on(Context& context, const Envelope& from, Undeliverable& message) {
  if (!message.full) {
    if (message.target.incarnation == kAnyIncarnation) return;
    if (members_.find(message.target)) {
      bury(context, message.target, "mail for it came back: that life has ended");
    } else if (is_gateway(message.target)) {
      lose_gateway(context, message.target);
    }
    return pump(context);
  }
  LedgerRow* row = requests_.find(from.request);
  if (!row || row->epoch != from.epoch) return;
  const Refusal full{ErrorCode::busy,
                     "the mailbox of rank " + std::to_string(message.target.rank) + " is full",
                     limits_.retry_after_us / kMillisecond};
  const auto kind = static_cast<MsgKind>(message.message_kind);
  if (kind == MsgKind::reserve && row->state == RequestState::reserving) {
    leases_.credit_refused(row->transfer);
    refuse_reserve(context, *row, full);
  } else if (kind == MsgKind::run && row->state == RequestState::prefill) {
    fail_run(context, *row, RequestEvent::run_refused, full);
  }
  pump(context);
}

void Scheduler::on(Context& context, const Envelope&, ActorDown& message) {
  if (members_.find(message.actor)) {
    bury(context, message.actor, "it failed: " + message.reason);
  } else if (is_gateway(message.actor)) {
    lose_gateway(context, message.actor);
  }
  pump(context);
}

// Everybody hears of the death first, so that transfers with it end; then its requests move on.
void Scheduler::bury(Context& context, ActorId life, const std::string& reason) {
  log_warning(life_name(life) + " is dead: " + reason);
  const bool was_serving = sites_.serving();
  const Worker worker = members_.bury(life);
  leases_.leave(worker_key(life));
  const std::vector<ActorId> freed = pairs_.leave(life);
  for (const ActorId newcomer : freed) refresh(context, *members_.find(newcomer));
  if (!freed.empty()) queue_.unpark();
  weights_.leave(life, awake(context));
  sites_.erase(worker_key(life));
  if (was_serving && !sites_.serving()) served_until_ = awake(context);
  const PeerDown news{life.rank, life.incarnation};
  for (const auto& [key, other] : members_.live()) context.send(other.id, news);
  for (const auto& [key, gateway] : gateways_) context.send(gateway, news);

  for (const RequestId id : worker.requests) {
    LedgerRow* row = requests_.find(id);
    if (!row) continue;
    const bool prefills = row->source == life;
    apply(context, *row, prefills ? RequestEvent::prefill_down : RequestEvent::decode_down,
          {ErrorCode::worker_lost,
           std::string(role_name(worker.info.role)) + " " + life_name(life) + " died: " + reason});
  }
}

bool Scheduler::is_gateway(ActorId life) const {
  const auto found = gateways_.find(worker_key(life));
  return found != gateways_.end() && found->second == life;
}

// Nobody is left who wants the answers.
void Scheduler::lose_gateway(Context& context, ActorId life) {
  if (is_gateway(life)) gateways_.erase(worker_key(life));
  for (const RequestId id : requests_.of_gateway(life)) {
    apply(context, *requests_.find(id), RequestEvent::gateway_down,
          {ErrorCode::cancelled, "its gateway has ended"});
  }
}

}  // namespace baton
