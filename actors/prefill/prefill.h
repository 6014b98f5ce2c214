#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/prefill/job.h"
#include "actors/prefill/packer.h"
#include "actors/protocol/gateway.h"
#include "actors/protocol/prefill.h"
#include "actors/protocol/worker.h"
#include "actors/worker/cancelled_memory.h"
#include "actors/worker/dead_peers.h"
#include "actors/worker/earlier_life.h"
#include "actors/worker/joining.h"
#include "actors/worker/plan_book.h"
#include "actors/worker/served_weights.h"
#include "runtime/actor/actor.h"
#include "runtime/actor/control_link.h"
#include "runtime/actor/engine.h"
#include "runtime/actor/kv_mover.h"
#include "runtime/engine/block_pool.h"
#include "runtime/engine/prefix_cache.h"
#include "runtime/engine/step_planner.h"

namespace baton {

// What a prefill actor says and hears besides its public protocol: completions and the runtime's
// own messages.
using PrefillMessages =
    MessageList<Run, Cancel, Adopted, AdoptFailed, KvDone, KvNack, Resend, TokensAck,  // peers
                Welcome, Refused, Connect, BeatAck, PeerDown, Drain,                   // scheduler
                WeightsPrepare, WeightsCommit, WeightsAbort, WeightsDrop, StepDone, KvSent,
                WeightsPrepared, Timer, LinkUp, LinkDown, Undeliverable,
                ActorDown>;  // this rank

struct PrefillOptions {
  Limits limits;
  InstanceId instance;
  ActorId scheduler{0, kSchedulerSlot, kAnyIncarnation};
  Engine* engine = nullptr;  // outlives the actor
  KvMover* mover = nullptr;  // outlives the actor
  PackPolicy pack_policy = PackPolicy::buckets;
  std::vector<uint32_t> prefill_lengths;   // empty: auto_prefill_lengths(); otherwise checked
  bool chunking = false;                   // cut prompts to fill steps (see StepBudget)
  uint32_t chunk_tokens_max = UINT32_MAX;  // of one prompt in one step
  size_t queue_max = 256;                  // prompts that wait here; more are refused with busy
  std::string host;
  std::string cores;
};

struct PrefillCounters {
  uint64_t steps = 0;
  uint64_t step_tokens = 0;      // computed
  uint64_t capacity_tokens = 0;  // that those steps could have taken: pack fill is the quotient
  std::array<uint64_t, kFlushReasons> packs{};  // by reason
  uint64_t runs = 0;
  uint64_t refused = 0;
  uint64_t stale = 0;   // messages for a life that is over
  uint64_t failed = 0;  // PrefillFailed
  uint64_t handed_over = 0;
  uint64_t pieces_sent = 0;    // messages of the data plane that these were divided into
  uint64_t finished_here = 0;  // ended with the first token, no transfer
  uint64_t cache_asked = 0;    // positions of prompts that the prefix cache was asked for
  uint64_t cache_hit = 0;      // of those, the ones that it had
};

// Computes prompts and hands their KV blocks to a decode actor. Owns the pool of its engine's
// blocks and every job from Run until its blocks are home; the runtime calls it on the loop
// thread. One step of the engine is under way at a time.
class Prefill final : public ActorOf<Prefill, PrefillMessages> {
 public:
  // Throws ActorBroken when the options cannot work (see check_prefill_lengths).
  explicit Prefill(PrefillOptions options);
  ~Prefill() override;

  void start(Context& context) override;

  void on(Context&, const Envelope&, Run&);
  void on(Context&, const Envelope&, Cancel&);
  void on(Context&, const Envelope&, Adopted&);
  void on(Context&, const Envelope&, AdoptFailed&);
  void on(Context&, const Envelope&, KvDone&);
  void on(Context&, const Envelope&, KvNack&);
  void on(Context&, const Envelope&, Resend&);
  void on(Context&, const Envelope&, TokensAck&) {}
  void on(Context&, const Envelope&, Welcome&);
  void on(Context&, const Envelope&, Refused&);
  void on(Context&, const Envelope&, Connect&);
  void on(Context&, const Envelope&, BeatAck&);
  void on(Context&, const Envelope&, PeerDown&);
  void on(Context&, const Envelope&, Drain&);
  void on(Context&, const Envelope&, WeightsPrepare&);
  void on(Context&, const Envelope&, WeightsPrepared&);
  void on(Context&, const Envelope&, WeightsCommit&);
  void on(Context&, const Envelope&, WeightsAbort&);
  void on(Context&, const Envelope&, WeightsDrop&);
  void on(Context&, const Envelope&, StepDone&);
  void on(Context&, const Envelope&, KvSent&);
  void on(Context&, const Envelope&, Timer&);
  void on(Context&, const Envelope&, LinkUp&) {}
  void on(Context&, const Envelope&, LinkDown&) {}
  void on(Context&, const Envelope&, Undeliverable&);
  void on(Context&, const Envelope&, ActorDown&);

  const PrefillCounters& counters() const { return counters_; }
  const Joining& joining() const { return joining_; }
  uint32_t blocks_free() const { return cache_.available(); }
  uint32_t blocks_cached() const { return cache_.blocks(); }
  size_t jobs() const { return jobs_.size(); }
  const ServedWeights& weights() const { return weights_; }

 private:
  using Jobs = std::map<TransferId, PrefillJob>;
  struct StepRow {
    TransferId transfer;
    uint32_t tokens = 0;  // positions that the row completes
  };

  // ---- intake.cpp: what arrives
  std::optional<Refusal> refuse_now(const Envelope& from, const Run& run) const;
  std::optional<Refusal> find_fault(const Run& run) const;
  std::optional<Refusal> find_target_fault(const Run& run, uint32_t tokens) const;

  // ---- prefill.cpp: membership, endings, time
  void join(Context& context);
  Beat load() const;
  uint32_t quarantined_blocks() const;
  PrefillJob* find(TransferId transfer, const Envelope& from);
  void fail(Context& context, Jobs::iterator job, Refusal refusal, bool retryable);
  // The job is over: nothing new is started, its sends end, its blocks go home as soon as they can.
  // Returns the job behind it.
  Jobs::iterator close(Jobs::iterator job);
  void close_lives(RequestId request, Epoch epoch);  // all with an epoch up to this one
  void lose_dead_targets(Context& context);
  void settle(Context& context);
  void sweep(Context& context);

  // ---- prefill_step.cpp: packs, steps, results
  void pump(Context& context);
  bool next_pack(Context& context);
  void drop_expired(Context& context);
  std::vector<WaitingPrompt> runnable();
  bool take_blocks(PrefillJob& job);
  void keep_blocks(PrefillJob& job);
  uint32_t chunk_start(const PrefillJob& job) const;
  void submit(Context& context, const StepPlan& plan);
  BatchRow make_row(TransferId transfer, PrefillJob& job, uint32_t tokens);
  void take_result(Context& context, const StepRow& row, RowResult* result);
  void collect_scores(PrefillJob& job, RowResult& result) const;
  void finish_prefill(Context& context, Jobs::iterator job, RowResult& result);
  void make_first(PrefillJob& job, RowResult& result);

  // ---- handover.cpp: from the first token to the hand-off record
  void prepare_pieces(Context& context, PrefillJob& job);
  void start_sending(Context& context, Jobs::iterator job);
  void announce(Context& context, TransferId transfer, PrefillJob& job);
  void retry_handing(Context& context);
  Usage usage_of(Context& context, const PrefillJob& job) const;

  const PrefillOptions options_;
  Engine& engine_;
  KvMover& mover_;
  BlockPool pool_;  // before all that holds leases on it
  PrefixCache cache_;
  EarlierLife earlier_;
  ServedWeights weights_;
  Joining joining_;
  PlanBook plans_;
  CancelledMemory cancelled_;
  DeadPeers dead_;
  Packer packer_;
  Jobs jobs_;
  std::deque<TransferId> pack_;     // the pack that runs; its finished members are gone
  std::vector<StepRow> step_rows_;  // of the step under way
  std::optional<StepId> step_;
  uint64_t last_step_ = 0;
  PrefillCounters counters_;
};

}  // namespace baton
