#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/protocol/decode.h"
#include "actors/protocol/prefill.h"
#include "actors/protocol/scheduler.h"
#include "actors/protocol/worker.h"
#include "actors/scheduler/admission.h"
#include "actors/scheduler/lease_ledger.h"
#include "actors/scheduler/live_requests.h"
#include "actors/scheduler/membership.h"
#include "actors/scheduler/pairs.h"
#include "actors/scheduler/request_ledger.h"
#include "actors/scheduler/sites.h"
#include "actors/scheduler/weights_update.h"
#include "actors/worker/cancelled_memory.h"
#include "runtime/actor/actor.h"
#include "runtime/actor/control_link.h"
#include "runtime/base/limits.h"

namespace baton {

struct SchedulerOptions {
  Limits limits;
  uint64_t boot_epoch = 1;  // grows with every start of the cluster
  uint64_t model_hash = 0;  // 0: that of the first worker
  AdmissionPolicy admission;
  LocalPrefillPolicy local_prefill;
  bool prefix_cache = true;
  // New requests are still queued for so long after the last prefill or decode instance has died.
  Micros grace_us = 10 * kSecond;
  ControlLink* link = nullptr;  // to other ranks; null when all actors live in one process
};

struct SchedulerCounters {
  uint64_t admitted = 0;
  uint64_t finished = 0;
  uint64_t cancelled = 0;
  uint64_t failed = 0;
  uint64_t refused = 0;     // Admit
  uint64_t migrations = 0;  // requests taken from a worker that failed or died
  uint64_t preemptions = 0;
  uint64_t poisoned = 0;  // failed because too many workers died with them
  uint64_t reserve_refusals = 0;
  uint64_t cached_tokens = 0;     // positions of prompts that prefix caches had
  uint64_t local_prefills = 0;    // prompts that a decode instance computed itself
  uint64_t fenced_messages = 0;   // of an old epoch, transfer or life
  uint64_t dropped_messages = 0;  // for a request that has ended, or without meaning in its state
  uint64_t slots_credited_late = 0;  // SlotFreed of a generation that was credited before
  uint64_t pauses = 0;               // of the scheduler itself
};

using SchedulerMessages =
    MessageList<Register, Beat, Drained, Connected, ConnectFailed,                     // workers
                WeightsReady, WeightsFailed, WeightsCommitted, WeightsDropped,         // workers
                Admit, Cancel, Frozen, Done, ClusterQuery, UpdateWeights, Drain,       // gateway
                Reserved, ReserveRefused, Adopted, AdoptFailed, SlotFreed, Preempted,  // decode
                RunRefused, PrefillDone, PrefillFailed, Cancelled,                     // prefill
                LinkUp, LinkDown, Undeliverable, ActorDown, Timer>;                    // this rank

// Decides which request runs where and when. Owns the request ledger, the lease ledger, the
// admission queue and the membership; the runtime calls it on the control rank's loop thread. It
// hears of requests, never of single tokens, and a decision costs the same however many there are.
class Scheduler final : public ActorOf<Scheduler, SchedulerMessages> {
 public:
  explicit Scheduler(SchedulerOptions options);

  void start(Context& context) override;

  // ---- scheduler_workers.cpp
  void on(Context&, const Envelope&, Register&);
  void on(Context&, const Envelope&, Beat&);
  void on(Context&, const Envelope&, Drained&);
  void on(Context&, const Envelope&, LinkUp&);
  void on(Context&, const Envelope&, LinkDown&);
  void on(Context&, const Envelope&, Undeliverable&);
  void on(Context&, const Envelope&, ActorDown&);

  // ---- scheduler_pairs.cpp
  void on(Context&, const Envelope&, Connected&);
  void on(Context&, const Envelope&, ConnectFailed&);

  // ---- scheduler_gateway.cpp
  void on(Context&, const Envelope&, Admit&);
  void on(Context&, const Envelope&, Cancel&);
  void on(Context&, const Envelope&, Frozen&);
  void on(Context&, const Envelope&, Done&);
  void on(Context&, const Envelope&, ClusterQuery&);
  void on(Context&, const Envelope&, Drain&);

  // ---- scheduler_stages.cpp
  void on(Context&, const Envelope&, Reserved&);
  void on(Context&, const Envelope&, ReserveRefused&);
  void on(Context&, const Envelope&, RunRefused&);
  void on(Context&, const Envelope&, PrefillDone&);
  void on(Context&, const Envelope&, PrefillFailed&);
  void on(Context&, const Envelope&, Adopted&);
  void on(Context&, const Envelope&, AdoptFailed&);
  void on(Context&, const Envelope&, SlotFreed&);
  void on(Context&, const Envelope&, Preempted&);
  void on(Context&, const Envelope&, Cancelled&);

  // ---- scheduler_weights.cpp
  void on(Context&, const Envelope&, UpdateWeights&);
  void on(Context&, const Envelope&, WeightsReady&);
  void on(Context&, const Envelope&, WeightsFailed&);
  void on(Context&, const Envelope&, WeightsCommitted&);
  void on(Context&, const Envelope&, WeightsDropped&);

  // ---- scheduler.cpp
  void on(Context&, const Envelope&, Timer&);

  // For checkers and tests.
  const SchedulerCounters& counters() const { return counters_; }
  const LeaseLedger& leases() const { return leases_; }
  const LiveRequests& requests() const { return requests_; }
  const Membership& members() const { return members_; }
  const Pairs& pairs() const { return pairs_; }
  const WeightsUpdate& weights() const { return weights_; }
  size_t queued() const { return queue_.size(); }

 private:
  // Why an event happens, for whoever is told about it.
  struct Cause {
    ErrorCode code = ErrorCode::internal;
    std::string text;
    const Reserved* reserved = nullptr;  // with the event of that name
    int64_t retry_after_ms = 0;
  };
  enum class Sender { source, target };
  struct Draining {
    std::vector<std::pair<ActorId, uint64_t>> asked;  // who, and the correlation
    Micros until = 0;
    bool workers_told = false;
  };

  // ---- scheduler.cpp: the ledger's events and actions
  // The row may be gone afterwards.
  void apply(Context&, LedgerRow&, RequestEvent, const Cause&);
  void perform(Context&, LedgerRow&, RequestAction, RequestEvent, const Cause&);
  void enter(Context&, LedgerRow&, RequestState);
  void send_reserve(Context&, LedgerRow&);
  void send_run(Context&, LedgerRow&, const Reserved&);
  void note_first_run(Context&, LedgerRow&, const Worker& computes, const Worker& target);
  void cancel_source(Context&, const LedgerRow&, const Cause&);
  void cancel_target(Context&, const LedgerRow&, RequestEvent, const Cause&);
  void requeue(LedgerRow&);
  void count_attempt(LedgerRow&, RequestEvent, const Cause&);
  void arrive_source(Context&, const LedgerRow&);
  void arrive_target(Context&, const LedgerRow&);
  void detach_source(Context&, LedgerRow&);
  void detach_target(Context&, LedgerRow&);
  // Places queued requests as long as there is capacity.
  void pump(Context&);
  void refresh(Context&, const Worker&);  // its entry in sites_
  void sweep(Context&);
  void discount_pause(Context&);
  void sweep_requests(Context&);
  Cause deadline_cause(const LedgerRow&) const;
  void expire_stage(Context&, LedgerRow&);
  Micros awake(const Context& context) const { return context.now() - paused_us_; }
  uint32_t take_tags(uint32_t count);
  Routing routing(const Context&, const LedgerRow&) const;

  // ---- scheduler_prefix.cpp
  PrefixNames names_of(const LedgerRow&, const Worker& computes, const Worker& keeps) const;
  void name_blocks(Reserve&, const LedgerRow&, uint32_t block_tokens) const;
  std::vector<PrefixHash> directory_names(const Admit&) const;
  void send_start(Context&, LedgerRow&);

  // ---- scheduler_stages.cpp
  // The row that a worker's message is about, if the message is of its present life; otherwise it
  // is counted, and a sender that still runs an old life is told to stop.
  LedgerRow* current(Context&, const Envelope&, TransferId, Sender, bool runs);
  void fail_run(Context&, LedgerRow&, RequestEvent, const Refusal&);
  void refuse_reserve(Context&, LedgerRow&, const Refusal&);

  // ---- scheduler_pairs.cpp
  void connect(Context&, const Worker& newcomer);

  // ---- scheduler_workers.cpp
  bool fence_stale(Context&, const Envelope&);
  void bury(Context&, ActorId life, const std::string& reason);
  bool is_gateway(ActorId life) const;
  void lose_gateway(Context&, ActorId life);

  // ---- scheduler_weights.cpp
  struct Asker {  // who is told how the update goes on
    ActorId gateway;
    uint64_t correlation = 0;
  };
  // Says what is due to workers and askers, and moves requests when the version has changed.
  void follow_weights(Context&);
  void command_worker(Context&, const WeightsUpdate::Command&);
  void switch_weights(Context&);
  void switch_row(Context&, LedgerRow&);
  void unbind_orphans();
  void report_update(Context&);
  uint64_t weights_for(const LedgerRow&) const;

  // ---- scheduler_gateway.cpp
  bool hear_gateway(Context&, const Envelope&);
  void readmit_known(Context&, const Envelope&, const Admit&, const LedgerRow&);
  void refuse(Context&, const Envelope&, Refusal);
  LedgerRow* gateway_row(const Envelope&);
  bool exhausted(const LedgerRow&) const;
  void exhaust(Context&, LedgerRow&);
  bool serving(const Context&) const;
  Micros retry_after() const;
  void note_end(const Context&);
  void progress_drain(Context&);
  ClusterReply report(const Context&) const;

  const SchedulerOptions options_;
  const Limits& limits_ = options_.limits;
  Membership members_;
  Pairs pairs_;
  LeaseLedger leases_;
  Sites sites_;
  AdmissionQueue queue_;
  LiveRequests requests_;
  WeightsUpdate weights_{limits_};
  std::vector<Asker> askers_;
  CancelledMemory early_cancels_;          // a Cancel may overtake its Admit
  std::map<WorkerKey, ActorId> gateways_;  // the present life at each place
  std::optional<Draining> draining_;
  SchedulerCounters counters_;

  uint64_t prefix_secret_ = 0;  // of this life
  uint64_t last_arrival_ = 0;
  uint64_t last_transfer_ = 0;
  uint32_t next_tag_ = 0;
  Micros last_sweep_ = 0;
  Micros paused_us_ = 0;          // time that the scheduler itself was stopped
  Micros served_until_ = kNever;  // awake time when a role was lost; kNever: never complete yet
  Micros last_end_ = 0;           // when a request last ended
  Micros end_interval_us_ = 0;    // smoothed
};

}  // namespace baton
