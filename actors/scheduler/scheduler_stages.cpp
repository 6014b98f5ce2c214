// What prefill and decode actors report about requests, in the order of a request's path.

#include <utility>

#include "actors/scheduler/scheduler.h"

namespace baton {
namespace {

// The request itself is at fault: another worker would say the same.
bool rejects(ErrorCode code) {
  switch (code) {
    case ErrorCode::invalid_argument:
    case ErrorCode::unsupported:
    case ErrorCode::context_too_long: return true;
    case ErrorCode::ok:
    case ErrorCode::not_found:
    case ErrorCode::bad_frame:
    case ErrorCode::bad_model:
    case ErrorCode::busy:
    case ErrorCode::unavailable:
    case ErrorCode::deadline_exceeded:
    case ErrorCode::cancelled:
    case ErrorCode::worker_lost:
    case ErrorCode::corrupt:
    case ErrorCode::stale:
    case ErrorCode::conflict:
    case ErrorCode::internal: return false;
  }
  return false;
}

std::string at_rank(const Envelope& from) {
  return " (rank " + std::to_string(from.from.rank) + ")";
}

// The travelling record as a worker returns it, with what the scheduler alone knows.
void take_usage(Usage& mine, const Usage& theirs) {
  const Usage before = mine;
  mine = theirs;
  mine.prompt_tokens = before.prompt_tokens;
  mine.queue_us = before.queue_us;
  mine.attempts = before.attempts;
  mine.prefill_rank = before.prefill_rank;
  mine.decode_rank = before.decode_rank;
  mine.exact = before.exact && theirs.exact;
}

}  // namespace

LedgerRow* Scheduler::current(Context& context, const Envelope& from, TransferId transfer,
                              Sender sender, bool runs) {
  LedgerRow* row = requests_.find(from.request);
  if (!row) {
    ++counters_.dropped_messages;
    return nullptr;
  }
  const std::optional<ActorId>& part = sender == Sender::source ? row->source : row->target;
  const bool same_life = from.epoch == row->epoch && transfer == row->transfer;
  if (same_life && part == from.from) return row;
  ++counters_.fenced_messages;
  if (runs && from.epoch < row->epoch) {
    context.send(from.from, Cancel{ErrorCode::stale}, {from.request, from.epoch, 0, kNever});
  }
  return nullptr;
}

void Scheduler::on(Context& context, const Envelope& from, Reserved& message) {
  if (fence_stale(context, from)) return;
  const bool known = leases_.confirm(message.transfer, message.slots, message.blocks_held);
  refresh(context, *members_.find(from.from));
  LedgerRow* row = current(context, from, message.transfer, Sender::target, true);
  if (row && !known) {
    // Slots that were not asked for: an answer that cannot be worked with.
    refuse_reserve(context, *row,
                   {ErrorCode::internal,
                    "the decode instance named " + std::to_string(message.slots.size()) +
                        " slots, expected " + std::to_string(row->choices().size()),
                    0});
  } else if (row) {
    apply(context, *row, RequestEvent::reserved, {ErrorCode::ok, {}, &message});
  } else if (!leases_.holds(message.transfer)) {
    // An answer that came after its lease had been given up: nobody else would give it back.
    context.send(from.from, Release{message.transfer}, {from.request, from.epoch, 0, kNever});
  }
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, ReserveRefused& message) {
  if (fence_stale(context, from)) return;
  leases_.credit_refused(message.transfer);
  refresh(context, *members_.find(from.from));
  if (LedgerRow* row = current(context, from, message.transfer, Sender::target, false)) {
    refuse_reserve(context, *row, message.refusal);
  }
  pump(context);
}

// The decode actor knows better than the lease ledger what it has: nothing more is asked of it
// until it has said so (with its next beat at the latest).
void Scheduler::refuse_reserve(Context& context, LedgerRow& row, const Refusal& refusal) {
  ++counters_.reserve_refusals;
  if (rejects(refusal.code)) {
    return apply(context, row, RequestEvent::reserve_rejected,
                 {refusal.code, refusal.text, nullptr, refusal.retry_after_ms});
  }
  if (Worker* target = row.target ? members_.find(*row.target) : nullptr) {
    leases_.report(worker_key(target->id), 0, 0);
    refresh(context, *target);
  }
  apply(context, row, RequestEvent::reserve_refused, {refusal.code, refusal.text});
}

void Scheduler::on(Context& context, const Envelope& from, RunRefused& message) {
  if (fence_stale(context, from)) return;
  if (LedgerRow* row = current(context, from, message.transfer, Sender::source, false)) {
    const bool rejected = rejects(message.refusal.code);
    fail_run(context, *row, rejected ? RequestEvent::prefill_rejected : RequestEvent::run_refused,
             message.refusal);
  }
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, PrefillFailed& message) {
  if (fence_stale(context, from)) return;
  if (LedgerRow* row = current(context, from, message.transfer, Sender::source, false)) {
    fail_run(context, *row,
             message.retryable ? RequestEvent::prefill_failed : RequestEvent::prefill_rejected,
             message.refusal);
  }
  pump(context);
}

void Scheduler::fail_run(Context& context, LedgerRow& row, RequestEvent event,
                         const Refusal& refusal) {
  Worker* source = members_.find(*row.source);
  if (event == RequestEvent::prefill_rejected) {
    return apply(context, row, event,
                 {refusal.code, refusal.text, nullptr, refusal.retry_after_ms});
  }
  // A target that was lost, or a deadline, says nothing about the prefill actor.
  const bool blamed = refusal.code != ErrorCode::worker_lost &&
                      refusal.code != ErrorCode::deadline_exceeded &&
                      refusal.code != ErrorCode::cancelled;
  if (source && blamed) members_.note_failure(*source, awake(context));
  apply(context, row, event,
        {ErrorCode::worker_lost,
         "prefill on rank " + std::to_string(row.source->rank) + " failed: " + refusal.text});
}

void Scheduler::on(Context& context, const Envelope& from, PrefillDone& message) {
  if (fence_stale(context, from)) return;
  if (LedgerRow* row = current(context, from, message.transfer, Sender::source, true)) {
    members_.note_success(*members_.find(from.from));
    const bool finished = message.finish != Finish::none;
    if (row->state == RequestState::prefill) take_usage(row->usage, message.usage);
    apply(context, *row, finished ? RequestEvent::prefill_finished : RequestEvent::prefill_done,
          {ErrorCode::ok, "every choice ended with its first token"});
  }
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, Adopted& message) {
  if (fence_stale(context, from)) return;
  if (LedgerRow* row = current(context, from, message.transfer, Sender::target, true)) {
    members_.note_success(*members_.find(from.from));
    take_usage(row->usage, message.usage);
    apply(context, *row, RequestEvent::adopted, {});
  }
  pump(context);
}

void Scheduler::on(Context& context, const Envelope& from, AdoptFailed& message) {
  if (fence_stale(context, from)) return;
  if (LedgerRow* row = current(context, from, message.transfer, Sender::target, false)) {
    // A source that was lost says nothing about the decode actor.
    if (message.refusal.code != ErrorCode::worker_lost) {
      members_.note_failure(*members_.find(from.from), awake(context));
    }
    apply(context, *row, RequestEvent::adopt_failed,
          {ErrorCode::worker_lost,
           "decode" + at_rank(from) + " did not adopt it: " + message.refusal.text});
  }
  pump(context);
}

// Credits the lease whatever has become of the request; only a generation that is still owed
// counts, and once.
void Scheduler::on(Context& context, const Envelope& from, SlotFreed& message) {
  if (fence_stale(context, from)) return;
  const WorkerKey key = worker_key(from.from);
  const LeaseLedger::Credit credit = leases_.credit_slot(key, message.slot);
  leases_.report(key, message.slots_free, message.blocks_free);
  refresh(context, *members_.find(from.from));
  LedgerRow* row = credit.last ? requests_.find(from.request) : nullptr;
  if (!credit.credited) {
    ++counters_.slots_credited_late;
  } else if (row && row->transfer == credit.transfer && row->target == from.from) {
    apply(context, *row, RequestEvent::slot_freed,
          {ErrorCode::worker_lost, "decode" + at_rank(from) + " gave its reservation up"});
  }
  pump(context);
}

// The slot itself comes home by SlotFreed, when its blocks are back.
void Scheduler::on(Context& context, const Envelope& from, Preempted& message) {
  if (fence_stale(context, from)) return;
  const auto transfer = leases_.owner(worker_key(from.from), message.slot);
  LedgerRow* row = transfer ? current(context, from, *transfer, Sender::target, false) : nullptr;
  if (row) {
    ++counters_.preemptions;
    apply(context, *row, RequestEvent::preempted,
          {ErrorCode::busy, "decode" + at_rank(from) + " needed its blocks for an older request"});
  } else if (!transfer) {
    ++counters_.fenced_messages;
  }
  pump(context);
}

// Nothing of that life runs there any more. The slots come home by SlotFreed.
void Scheduler::on(Context& context, const Envelope& from, Cancelled&) {
  fence_stale(context, from);
}

}  // namespace baton
