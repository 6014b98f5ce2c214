// The ledger's events and actions, capacity, and time. The other handlers are in
// scheduler_gateway.cpp, scheduler_stages.cpp and scheduler_workers.cpp.

#include "actors/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "actors/worker/deadline.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

constexpr uint32_t kSweepTimer = 1;
constexpr Micros kSweepPeriod = 100 * kMillisecond;
constexpr Micros kPauseMin = kSecond;  // a gap between sweeps that counts as a pause
constexpr uint32_t kTagEnd = uint32_t{1} << 30;
constexpr size_t kEarlyCancelsMax = 4096;
constexpr int kStageExtensionsMax = 9;

bool arriving_at_source(RequestState state) {
  return state == RequestState::reserving || state == RequestState::prefill;
}
bool arriving_at_target(RequestState state) {
  return arriving_at_source(state) || state == RequestState::transfer;
}
// States in which no worker has a part in the request.
bool unattached(RequestState state) {
  return state == RequestState::queued || state == RequestState::freezing || is_terminal(state);
}

}  // namespace

Scheduler::Scheduler(SchedulerOptions options)
    : options_(std::move(options)),
      members_(options_.limits, options_.model_hash),
      queue_(options_.admission),
      early_cancels_(kEarlyCancelsMax) {}

// Tags and transfers of an earlier life of the scheduler may still be under way: a life starts at
// a random tag, and its transfers carry its boot epoch and incarnation.
void Scheduler::start(Context& context) {
  next_tag_ = static_cast<uint32_t>(context.random() % kTagEnd);
  last_transfer_ =
      (options_.boot_epoch & 0xFFFF) << 48 | uint64_t{context.self().incarnation & 0xFFFF} << 32;
  last_sweep_ = last_end_ = context.now();
  context.set_timer(kSweepPeriod, kSweepTimer);
}

Routing Scheduler::routing(const Context& context, const LedgerRow& row) const {
  return {row.id, row.epoch, 0, remaining_until(row.deadline, context.now())};
}

// ---------------------------------------------------------------- events

void Scheduler::apply(Context& context, LedgerRow& row, RequestEvent event, const Cause& cause) {
  const Transition change = transition(row.state, event);
  if (change.dropped) {
    ++counters_.dropped_messages;
    return;
  }
  for (const RequestAction action : change.actions) perform(context, row, action, event, cause);
  enter(context, row, change.next);
}

void Scheduler::perform(Context& context, LedgerRow& row, RequestAction action, RequestEvent event,
                        const Cause& cause) {
  switch (action) {
    case RequestAction::send_reserve: return send_reserve(context, row);
    case RequestAction::send_run: return send_run(context, row, *cause.reserved);
    case RequestAction::activate_lease: return leases_.activate(row.transfer);
    case RequestAction::cancel_source: return cancel_source(context, row, cause);
    case RequestAction::cancel_target: return cancel_target(context, row, event, cause);
    case RequestAction::raise_epoch: ++row.epoch.value; return;
    case RequestAction::count_attempt: return count_attempt(row, event, cause);
    case RequestAction::freeze:
      return context.send(row.gateway, Freeze{cause.text}, routing(context, row));
    case RequestAction::readmit:
      return context.send(row.gateway, Admitted{}, routing(context, row));
    case RequestAction::requeue_head: return requeue(row);
    case RequestAction::tell_gateway:
      return context.send(row.gateway, Failed{{cause.code, cause.text, cause.retry_after_ms}},
                          routing(context, row));
    case RequestAction::ack_done:
      return context.send(row.gateway, DoneAck{row.usage}, routing(context, row));
    case RequestAction::forget_source: return detach_source(context, row);
    case RequestAction::forget_target: return detach_target(context, row);
  }
}

void Scheduler::enter(Context& context, LedgerRow& row, RequestState next) {
  if (row.state == RequestState::queued && next != RequestState::queued) queue_.remove(row.id);
  if (unattached(next)) {
    detach_source(context, row);
    detach_target(context, row);
  } else {
    if (!arriving_at_source(next)) arrive_source(context, row);
    if (!arriving_at_target(next)) arrive_target(context, row);
  }
  requests_.set_state(row, next);
  if (is_terminal(next)) {
    ++(next == RequestState::finished    ? counters_.finished
       : next == RequestState::cancelled ? counters_.cancelled
                                         : counters_.failed);
    note_end(context);
    requests_.erase(row.id);
    return;
  }
  const bool timed = next != RequestState::queued && next != RequestState::decode;
  requests_.set_stage_due(row, timed ? awake(context) + limits_.stage_us : kNever);
  if (next == RequestState::prefill) {
    row.stage_steps = members_.find(*row.source)->load.step;
    row.stage_extensions = 0;
  }
}

// A request that is no longer on its way to a worker makes room there for the next one.
void Scheduler::arrive_source(Context& context, const LedgerRow& row) {
  Worker* source = row.source ? members_.find(*row.source) : nullptr;
  if (!source || !arriving_at_source(row.state)) return;
  CHECK(source->arriving > 0);
  --source->arriving;
  source->positions_ahead -= row.prefill_tokens();
  refresh(context, *source);
}

void Scheduler::arrive_target(Context& context, const LedgerRow& row) {
  Worker* target = row.target ? members_.find(*row.target) : nullptr;
  if (!target || !arriving_at_target(row.state)) return;
  CHECK(target->arriving > 0);
  --target->arriving;
  refresh(context, *target);
}

void Scheduler::detach_source(Context& context, LedgerRow& row) {
  arrive_source(context, row);
  if (Worker* source = row.source ? members_.find(*row.source) : nullptr) {
    source->requests.erase(row.id);
  }
  row.source.reset();
}

void Scheduler::detach_target(Context& context, LedgerRow& row) {
  arrive_target(context, row);
  if (Worker* target = row.target ? members_.find(*row.target) : nullptr) {
    target->requests.erase(row.id);
  }
  row.target.reset();
}

// ---------------------------------------------------------------- actions

uint32_t Scheduler::take_tags(uint32_t count) {
  if (count >= kTagEnd - next_tag_) next_tag_ = 0;
  const uint32_t first = next_tag_;
  next_tag_ += count;
  return first;
}

// source and target were chosen by pump().
void Scheduler::send_reserve(Context& context, LedgerRow& row) {
  Worker& source = *members_.find(*row.source);
  Worker& target = *members_.find(*row.target);
  const Remainder left = row.remainder();
  const uint64_t tokens = row.prefill_tokens();
  const Need need = need_of(row.ask, left);
  const KvGeometry& geometry = target.info.geometry;
  row.transfer = {++last_transfer_};
  // A piece has one block or more, so that there are never more pieces than blocks.
  row.tag_first = take_tags(geometry.blocks_for(tokens));
  leases_.reserve(row.transfer, worker_key(target.id), need.slots,
                  Sites::blocks_for(need, geometry.block_tokens, target.info.capacity.blocks));
  source.requests.insert(row.id);
  target.requests.insert(row.id);
  ++source.arriving;
  ++target.arriving;
  source.positions_ahead += tokens;
  refresh(context, source);
  refresh(context, target);

  Reserve reserve;
  reserve.transfer = row.transfer;
  reserve.tag_first = row.tag_first;
  reserve.source = source.id;
  reserve.source_geometry = source.info.geometry;
  reserve.plan = members_.plan(source, target).digest;
  reserve.tokens = static_cast<uint32_t>(tokens);
  reserve.new_tokens = static_cast<uint32_t>(
      row.ask.stops.max_tokens - std::min<uint64_t>(left.carried, row.ask.stops.max_tokens));
  reserve.n = left.choices;
  reserve.own_tokens = static_cast<uint32_t>(left.own);
  context.send(target.id, reserve, routing(context, row));
}

void Scheduler::send_run(Context& context, LedgerRow& row, const Reserved& reserved) {
  const Worker& source = *members_.find(*row.source);
  const Worker& target = *members_.find(*row.target);
  const Plan& plan = members_.plan(source, target);
  if (!row.ran) {
    row.numerics_id = source.info.numerics_id;
    row.usage.queue_us = context.now() - row.admitted_at;
  }
  row.ran = true;
  row.usage.prompt_tokens = static_cast<uint32_t>(row.ask.ids.size());
  row.usage.prefill_rank = source.id.rank;
  row.usage.decode_rank = target.id.rank;
  row.usage.attempts = row.attempts;
  row.usage.exact = row.usage.exact && plan.exact && source.info.numerics_id == row.numerics_id &&
                    target.info.numerics_id == row.numerics_id;

  Run run;
  run.ids = row.ask.ids;
  run.choices = row.choices();
  for (const uint32_t choice : run.choices) run.committed.push_back(row.committed_of(choice));
  run.from_token = reserved.hit_tokens;
  run.gateway = row.gateway;
  run.target = target.id;
  run.transfer = row.transfer;
  run.tag_first = row.tag_first;
  run.plan = plan.digest;
  run.target_blocks = reserved.blocks;
  run.sampling = row.ask.sampling;
  run.stops = row.ask.stops;
  run.usage = row.usage;
  context.send(source.id, run, routing(context, row));
}

// Only from Run to hand-off does prefill hold anything.
void Scheduler::cancel_source(Context& context, const LedgerRow& row, const Cause& cause) {
  const bool holds = row.state == RequestState::prefill || row.state == RequestState::transfer;
  if (!holds || !row.source || !members_.find(*row.source)) return;
  context.send(*row.source, Cancel{cause.code}, routing(context, row));
}

// What decode holds is named by the transfer until it has adopted the request, and by the request
// from then on; while Adopt is under way, both. The slots stay in quarantine until it says that
// they are free.
void Scheduler::cancel_target(Context& context, const LedgerRow& row, RequestEvent event,
                              const Cause& cause) {
  Worker* target = row.target ? members_.find(*row.target) : nullptr;
  if (!target) return;
  const bool held = leases_.holds(row.transfer);
  const bool reserved = row.state == RequestState::reserving ||
                        row.state == RequestState::prefill || row.state == RequestState::transfer;
  const bool may_run = row.state != RequestState::reserving &&
                       event != RequestEvent::prefill_finished &&
                       (held || row.state == RequestState::closing);
  if (held && reserved) context.send(target->id, Release{row.transfer}, routing(context, row));
  if (may_run) context.send(target->id, Cancel{cause.code}, routing(context, row));
  if (!held) return;
  leases_.quarantine(row.transfer, awake(context));
  refresh(context, *target);
}

void Scheduler::requeue(LedgerRow& row) {
  QueueRank rank;
  rank.fresh = false;
  rank.urgency = -row.ask.priority;
  rank.arrival = row.arrival;
  queue_.push(row.id, rank, need_of(row.ask, row.remainder()));
}

// A worker that had the request in its engine may have died of it.
void Scheduler::count_attempt(LedgerRow& row, RequestEvent event, const Cause& cause) {
  ++row.attempts;
  ++counters_.migrations;
  row.lost = cause.text;
  const bool killed = event == RequestEvent::prefill_down ||
                      (event == RequestEvent::decode_down && row.state != RequestState::prefill);
  if (killed) ++row.deaths;
}

// ---------------------------------------------------------------- capacity

void Scheduler::refresh(Context& context, const Worker& worker) {
  const WorkerKey key = worker_key(worker.id);
  if (worker.drained) return sites_.erase(key);
  const bool open = members_.open(worker, awake(context));
  if (worker.info.role == Role::prefill) {
    PrefillSite site;
    site.positions_max = worker.positions_max();
    site.window = static_cast<uint32_t>(limits_.prefill_window);
    site.outstanding = worker.arriving;
    site.positions_ahead = worker.positions_ahead;
    site.open = open;
    sites_.put(key, site);
  } else {
    DecodeSite site;
    site.positions_max = worker.positions_max();
    site.slots = worker.info.capacity.slots;
    site.block_tokens = worker.info.geometry.block_tokens;
    site.blocks = worker.info.capacity.blocks;
    site.room = leases_.room(key);
    site.open = open;
    sites_.put(key, site);
  }
}

void Scheduler::pump(Context& context) {
  while (const auto next = queue_.take(sites_, awake(context))) {
    LedgerRow& row = *requests_.find(next->request);
    row.source = members_.at(next->source)->id;
    row.target = members_.at(next->target)->id;
    apply(context, row, RequestEvent::capacity, {});
  }
}

// ---------------------------------------------------------------- time

void Scheduler::on(Context& context, const Envelope&, Timer& timer) {
  if (timer.purpose == kSweepTimer) sweep(context);
}

// Runs always, whether there is work or not: whatever message was lost, nothing is held for ever.
void Scheduler::sweep(Context& context) {
  discount_pause(context);
  for (const Membership::Dead& dead : members_.overdue(awake(context))) {
    bury(context, dead.id, dead.reason);
    // Mail that waits for that process will never be wanted.
    if (options_.link && dead.id.rank != context.self().rank) options_.link->forget(dead.id.rank);
  }
  sweep_requests(context);
  const Micros patience = limits_.lease_us + limits_.stage_us;
  for (const WorkerKey key : leases_.reclaim(awake(context) - patience)) {
    if (const Worker* worker = members_.at(key)) refresh(context, *worker);
  }
  for (const auto& [key, worker] : members_.live()) {
    if (worker.failures > 0) refresh(context, worker);
  }
  progress_drain(context);
  pump(context);
  context.set_timer(kSweepPeriod, kSweepTimer);
}

void Scheduler::discount_pause(Context& context) {
  const Micros gap = context.now() - last_sweep_;
  last_sweep_ = context.now();
  if (gap < kPauseMin) return;
  ++counters_.pauses;
  paused_us_ += gap - kSweepPeriod;
  members_.restart_ages(awake(context));
  log_warning("the scheduler was stopped for " + std::to_string(gap / kMillisecond) +
              " ms; ages of workers start again");
}

void Scheduler::sweep_requests(Context& context) {
  while (LedgerRow* row = requests_.deadline_passed(context.now())) {
    apply(context, *row, RequestEvent::deadline,
          {ErrorCode::deadline_exceeded, std::string("the deadline passed while the request was ") +
                                             request_state_name(row->state)});
  }
  while (LedgerRow* row = requests_.stage_passed(awake(context))) expire_stage(context, *row);
  while (const auto id = queue_.parked_since_before(awake(context) - limits_.stage_us)) {
    LedgerRow& row = *requests_.find(*id);
    const std::string waited = "no instance that could take the request has been alive for " +
                               std::to_string(limits_.stage_us / kMillisecond) + " ms";
    const ErrorCode code = row.ran ? ErrorCode::worker_lost : ErrorCode::unavailable;
    apply(context, row, RequestEvent::starved,
          {code, row.lost.empty() ? waited : waited + "; before that: " + row.lost, nullptr,
           retry_after() / kMillisecond});
  }
}

// A stage that is too long. A prompt may wait behind others: while its prefill actor makes steps,
// it is given more time, within reason.
void Scheduler::expire_stage(Context& context, LedgerRow& row) {
  Worker* source = row.source ? members_.find(*row.source) : nullptr;
  Worker* target = row.target ? members_.find(*row.target) : nullptr;
  const bool progress =
      row.state == RequestState::prefill && source && source->load.step != row.stage_steps;
  if (progress && row.stage_extensions < kStageExtensionsMax) {
    ++row.stage_extensions;
    row.stage_steps = source->load.step;
    requests_.set_stage_due(row, awake(context) + limits_.stage_us);
    return;
  }
  if (row.state == RequestState::prefill && source) {
    members_.note_failure(*source, awake(context));
  } else if (arriving_at_target(row.state) && target) {
    members_.note_failure(*target, awake(context));
  }
  const std::string text = std::string("it was ") + request_state_name(row.state) +
                           " for longer than " + std::to_string(limits_.stage_us / kMillisecond) +
                           " ms";
  apply(context, row, RequestEvent::stage_timeout, {ErrorCode::worker_lost, text});
}

}  // namespace baton
