// What gateways ask: admission, cancelling, the answers to Freeze, the end, the status; and leaving
// in order.

#include <algorithm>
#include <utility>

#include "actors/scheduler/scheduler.h"
#include "actors/worker/deadline.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

constexpr Micros kRetryAfterMax = 30 * kSecond;

bool same_ask(const Admit& a, const Admit& b) {
  return encode_body(a) == encode_body(b);
}

}  // namespace

// False for an old life of a gateway. A new one says that the earlier has ended.
bool Scheduler::hear_gateway(Context& context, const Envelope& from) {
  const auto [known, fresh] = gateways_.try_emplace(worker_key(from.from), from.from);
  if (fresh || known->second == from.from) return true;
  if (known->second.incarnation > from.from.incarnation) {
    ++counters_.fenced_messages;
    return false;
  }
  const ActorId earlier = known->second;
  known->second = from.from;
  lose_gateway(context, earlier);
  return true;
}

void Scheduler::refuse(Context& context, const Envelope& from, Refusal refusal) {
  ++counters_.refused;
  context.send(from.from, AdmitRefused{std::move(refusal)},
               {from.request, from.epoch, from.correlation, kNever});
}

void Scheduler::on(Context& context, const Envelope& from, Admit& message) {
  if (!hear_gateway(context, from)) return;
  if (const LedgerRow* known = requests_.find(from.request)) {
    return readmit_known(context, from, message, *known);
  }
  if (from.request.value == 0) {
    return refuse(context, from, {ErrorCode::invalid_argument, "request id 0 names no request", 0});
  }
  if (early_cancels_.covers(from.request, {1})) {
    return refuse(context, from,
                  {ErrorCode::cancelled, "the request was cancelled before it could be queued", 0});
  }
  AdmitLoad load;
  load.queued = queue_.size();
  load.live = requests_.size();
  load.draining = draining_.has_value();
  load.serving = serving(context);
  load.remaining_us = from.remaining_us;
  load.retry_after_us = retry_after();
  if (auto refusal = refuse_admit(message, load, sites_.reach(), limits_)) {
    return refuse(context, from, std::move(*refusal));
  }
  LedgerRow row;
  row.id = from.request;
  row.gateway = from.from;
  row.ask = std::move(message);
  row.arrival = ++last_arrival_;
  row.admitted_at = context.now();
  row.deadline = deadline_after(context.now(), from.remaining_us);
  const QueueRank rank{true, -row.ask.priority, queue_.due_of(row.deadline, context.now()),
                       row.arrival};
  LedgerRow& added = requests_.add(std::move(row));
  queue_.push(added.id, rank, need_of(added.ask, added.remainder()));
  ++counters_.admitted;
  context.send(from.from, Admitted{static_cast<uint32_t>(queue_.size() - 1)},
               {added.id, added.epoch, from.correlation, kNever});
  pump(context);
}

// The same again is answered again; another request under a live id is refused.
void Scheduler::readmit_known(Context& context, const Envelope& from, const Admit& ask,
                              const LedgerRow& known) {
  if (known.gateway != from.from || !same_ask(known.ask, ask)) {
    return refuse(context, from,
                  {ErrorCode::conflict,
                   "request id " + std::to_string(from.request.value) +
                       " is in use by another request; ids must be unique",
                   0});
  }
  context.send(from.from, Admitted{static_cast<uint32_t>(queue_.size())},
               {known.id, known.epoch, from.correlation, kNever});
}

// The row that the gateway may speak of; counts what it may not.
LedgerRow* Scheduler::gateway_row(const Envelope& from) {
  LedgerRow* row = requests_.find(from.request);
  if (!row) {
    ++counters_.dropped_messages;
    return nullptr;
  }
  if (row->gateway != from.from) {
    ++counters_.fenced_messages;
    return nullptr;
  }
  return row;
}

void Scheduler::on(Context& context, const Envelope& from, Cancel& message) {
  if (!requests_.find(from.request)) early_cancels_.note(from.request, {UINT32_MAX});
  if (LedgerRow* row = gateway_row(from)) {
    const ErrorCode code = message.reason == ErrorCode::ok ? ErrorCode::cancelled : message.reason;
    apply(context, *row, RequestEvent::cancel, {code, "the request was cancelled"});
  }
  pump(context);
}

bool Scheduler::exhausted(const LedgerRow& row) const {
  return row.deaths >= static_cast<uint32_t>(limits_.worker_deaths_max) ||
         row.attempts > static_cast<uint32_t>(limits_.attempts_max);
}

void Scheduler::exhaust(Context& context, LedgerRow& row) {
  const bool poison = row.deaths >= static_cast<uint32_t>(limits_.worker_deaths_max);
  const std::string why =
      poison ? std::to_string(row.deaths) + " workers died while they ran the request (limit " +
                   std::to_string(limits_.worker_deaths_max) + "), so it is not tried again"
             : "the request was retried " + std::to_string(limits_.attempts_max) +
                   " times after failures, which is the limit";
  if (poison) ++counters_.poisoned;
  apply(context, row, RequestEvent::attempts_exhausted,
        {ErrorCode::worker_lost, why + "; the last one: " + row.lost});
}

void Scheduler::on(Context& context, const Envelope& from, Frozen& message) {
  LedgerRow* row = gateway_row(from);
  if (row && from.epoch != row->epoch) {
    ++counters_.fenced_messages;
  } else if (row && row->state == RequestState::freezing) {
    row->committed = std::move(message.committed);
    row->ended = std::move(message.ended);
    if (message.complete || row->choices().empty()) {
      apply(context, *row, RequestEvent::frozen_complete, {});
    } else if (exhausted(*row)) {
      exhaust(context, *row);
    } else {
      apply(context, *row, RequestEvent::frozen, {});
    }
  } else if (row) {
    ++counters_.dropped_messages;
  }
  pump(context);
}

// Legal in every epoch: what the gateway has committed stays committed. Answered even when the
// request is not known any more, so that the gateway can forget it.
void Scheduler::on(Context& context, const Envelope& from, Done& message) {
  LedgerRow* row = gateway_row(from);
  if (!row) {
    return context.send(from.from, DoneAck{}, {from.request, from.epoch, 0, kNever});
  }
  row->usage.completion_tokens = message.completion_tokens;
  row->usage.attempts = row->attempts;
  switch (message.outcome) {
    case Finish::none:
    case Finish::stop:
    case Finish::length:
      apply(context, *row, RequestEvent::done, {ErrorCode::cancelled, "the answer is complete"});
      break;
    case Finish::cancelled:
      apply(context, *row, RequestEvent::cancel, {ErrorCode::cancelled, "the client has left"});
      break;
    case Finish::error:
      apply(context, *row, RequestEvent::done_failed,
            {ErrorCode::cancelled, "the answer ended with an error"});
      break;
  }
  pump(context);
}

bool Scheduler::serving(const Context& context) const {
  if (sites_.reach().prefill && sites_.reach().decode) return true;
  return served_until_ != kNever && awake(context) - served_until_ < options_.grace_us;
}

// How long the present queue takes at the pace of late.
Micros Scheduler::retry_after() const {
  const Micros estimate = static_cast<Micros>(queue_.size() + 1) * end_interval_us_;
  return std::clamp(estimate, limits_.retry_after_us, kRetryAfterMax);
}

void Scheduler::note_end(const Context& context) {
  const Micros interval = context.now() - last_end_;
  last_end_ = context.now();
  end_interval_us_ += (interval - end_interval_us_) / 8;
}

// ---------------------------------------------------------------- leaving in order

void Scheduler::on(Context& context, const Envelope& from, Drain&) {
  if (!draining_) {
    draining_.emplace();
    const Micros wait = std::min(limits_.drain_us, from.remaining_us);
    draining_->until = deadline_after(context.now(), wait);
    log_info("draining: no new requests, " + std::to_string(requests_.size()) + " are running");
  }
  draining_->asked.emplace_back(from.from, from.correlation);
  progress_drain(context);
}

// First the requests end (retries need the workers), then the workers say that they are empty.
void Scheduler::progress_drain(Context& context) {
  if (!draining_ || draining_->asked.empty()) return;
  const bool late = context.now() >= draining_->until;
  if (late) {
    for (const RequestId id : requests_.all()) {
      apply(context, *requests_.find(id), RequestEvent::deadline,
            {ErrorCode::unavailable, "the cluster is shutting down"});
    }
  }
  if (requests_.size() > 0) return;
  if (!draining_->workers_told) {
    draining_->workers_told = true;
    for (const auto& [key, worker] : members_.live()) context.send(worker.id, Drain{});
  }
  const bool empty = std::all_of(members_.live().begin(), members_.live().end(),
                                 [](const auto& entry) { return entry.second.drained; });
  if (!empty && !late) return;
  for (const auto& [asker, correlation] : draining_->asked) {
    context.send(asker, Drained{}, {{}, {}, correlation, kNever});
  }
  draining_->asked.clear();
}

}  // namespace baton
