#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/decode/incoming.h"
#include "actors/decode/retained.h"
#include "actors/decode/sequence.h"
#include "actors/decode/slots.h"
#include "actors/decode/withdrawn_memory.h"
#include "actors/protocol/decode.h"
#include "actors/protocol/gateway.h"
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

// What a decode actor says and hears besides its public protocol: completions and the runtime's
// own messages.
using DecodeMessages =
    MessageList<Reserve, Start, Release, Cancel, KvPost, KvNack, Adopt, TokensAck, Resend,  // peers
                Welcome, Refused, Connect, BeatAck, PeerDown, Drain,  // scheduler
                WeightsPrepare, WeightsCommit, WeightsAbort, WeightsDrop, StepDone, KvReceived,
                WeightsPrepared, Timer, LinkUp, LinkDown, Undeliverable, ActorDown>;

struct DecodeOptions {
  Limits limits;  // decode_slots, stream_ahead_max, lease_us among them
  InstanceId instance;
  ActorId scheduler{0, kSchedulerSlot, kAnyIncarnation};
  Engine* engine = nullptr;  // outlives the actor
  KvMover* mover = nullptr;  // outlives the actor
  // Tokens that catching up (below) may take of a step in which others decode, at most: what it
  // takes, their next tokens come later by.
  uint32_t catch_up_tokens = 64;
  // Steps from one look at what was decoded to the next: fewer messages against tokens that are
  // computed after a sequence's end and thrown away.
  uint32_t min_decode_steps = 1;
  std::string host;
  std::string cores;
};

struct DecodeCounters {
  uint64_t steps = 0;
  uint64_t tokens = 0;      // sent to gateways
  uint64_t step_rows = 0;   // computed
  uint64_t slot_steps = 0;  // slots that those steps could have served: their quotient is use
  uint64_t reserved = 0;
  uint64_t refused = 0;
  uint64_t adopted = 0;
  uint64_t transfers_failed = 0;  // AdoptFailed
  uint64_t corrupt = 0;           // pieces whose digest was wrong
  uint64_t preempted = 0;
  uint64_t paused = 0;         // rows left out of a step because their reader is behind
  uint64_t discarded = 0;      // tokens computed for a sequence that had ended meanwhile
  uint64_t overshoot = 0;      // tokens computed after a sequence's end, for want of a look
  uint64_t caught_up = 0;      // positions computed here that were known already
  uint64_t copied_blocks = 0;  // shared by several sequences until one of them wrote
  uint64_t set_aside = 0;      // choices that gave their blocks to others of their request
  uint64_t stale = 0;          // messages for a life that is over
  uint64_t leases_expired = 0;
  uint64_t cache_asked = 0;     // positions that the prefix cache was asked for
  uint64_t cache_hit = 0;       // of those, the ones that it had
  uint64_t local_prefills = 0;  // prompts that were computed here
};

// Receives prompts' KV blocks and decodes from them: all running sequences go one token further
// with each step of the engine. One whose known tokens are not all in its blocks catches up first,
// a chunk per step beside the others. The choices of a request share the blocks of its prompt; a
// block is copied when one of several holders writes it.
//
// Owns the pool of its engine's blocks, the slots, every reservation and every running sequence;
// the runtime calls it on the loop thread. Every slot lease that it gives out ends with exactly one
// SlotFreed, when its blocks are back.
class Decode final : public ActorOf<Decode, DecodeMessages> {
 public:
  explicit Decode(DecodeOptions options);
  ~Decode() override;

  void start(Context& context) override;

  void on(Context&, const Envelope&, Reserve&);
  void on(Context&, const Envelope&, Start&);
  void on(Context&, const Envelope&, Release&);
  void on(Context&, const Envelope&, Cancel&);
  void on(Context&, const Envelope&, KvPost&);
  void on(Context&, const Envelope&, KvNack&);
  void on(Context&, const Envelope&, Adopt&);
  void on(Context&, const Envelope&, TokensAck&);
  void on(Context&, const Envelope&, Resend&);
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
  void on(Context&, const Envelope&, KvReceived&);
  void on(Context&, const Envelope&, Timer&);
  void on(Context&, const Envelope&, LinkUp&) {}
  void on(Context&, const Envelope&, LinkDown&) {}
  void on(Context&, const Envelope&, Undeliverable&) {}
  void on(Context&, const Envelope&, ActorDown&);

  const DecodeCounters& counters() const { return counters_; }
  const Joining& joining() const { return joining_; }
  uint32_t blocks_free() const { return cache_.available(); }
  uint32_t blocks_cached() const { return cache_.blocks(); }
  uint32_t slots_free() const { return slots_.free(); }
  size_t reservations() const { return incoming_.size(); }
  size_t streams() const { return retained_.size(); }
  const ServedWeights& weights() const { return weights_; }
  uint32_t running() const;

 private:
  using Transfers = std::map<TransferId, Incoming>;
  // A slot whose owner is gone, until its blocks are back.
  struct Freed {
    RequestId request;
    Epoch epoch;
    SlotLease slot;
    uint32_t choice = 0;
    Finish finish = Finish::none;
    std::vector<BlockLease> blocks;
  };
  // A block to be copied by the next step; `to` belongs to a running sequence.
  struct Copy {
    BlockLease from;
    BlockId to;
  };

  // ---- decode.cpp: membership, cancelling, time
  void join(Context& context);
  Beat load() const;
  uint32_t quarantined_blocks() const;
  void end_lives(Context& context, RequestId request, Epoch epoch);
  void sweep(Context& context);
  void expire_reservations(Context& context);
  void lose_dead_sources(Context& context);
  void settle(Context& context);
  bool uses_weights(uint64_t version) const;

  // ---- reservations.cpp: taken and given back
  std::optional<Refusal> refuse_now(const Envelope& from, const Reserve& wanted) const;
  std::optional<Refusal> find_fault(const Reserve& wanted) const;
  Result<void> take_blocks(Incoming& incoming, const Reserve& wanted);
  Result<void> post_receives(Context& context, Incoming& incoming,
                             const std::vector<BlockId>& blocks, uint32_t tag_first);
  Result<Reserved> reserve(Context& context, const Envelope& from, const Reserve& wanted);
  bool runs(TransferId transfer) const;
  std::optional<uint32_t> slot_of(RequestId request, uint32_t choice, Epoch epoch) const;
  // Says AdoptFailed to both sides and closes.
  void fail_transfer(Context& context, Transfers::iterator place, const Refusal& refusal);
  // The reservation is over; slot and blocks go home when no receive touches them any more.
  void close(Context& context, Transfers::iterator place);
  void finish_closing(Context& context, Transfers::iterator place);
  void drain(const Incoming& incoming, std::vector<KvPiece> pieces);

  // ---- transfers.cpp: announcement, pieces, record; together, a sequence
  void refuse_post(Context& context, const Envelope& from, const KvPost& post);
  void check_piece(Context& context, Incoming& incoming, IncomingPiece& piece);
  void try_activate(Context& context, Transfers::iterator place);

  // ---- starting.cpp: from a hand-off record to running sequences
  void activate(Context& context, Incoming& incoming);
  Sequence& place_sequence(const Incoming& incoming, size_t index, uint64_t age);
  void start_sequence(const Incoming& incoming, size_t index, uint64_t age);
  void share_out(Incoming& incoming, const std::vector<uint32_t>& slots);
  void start_keeping(Sequence& sequence, const PrefixNames& names);
  std::optional<Refusal> find_fault(const Incoming& incoming, const Start& start) const;
  void start_local(Context& context, Incoming& incoming, Start& start);
  void report_local(Context& context, Sequence& sequence);
  void end_at_once(Context& context, const Incoming& incoming);

  // ---- decode_step.cpp: the loop
  void pump(Context& context);
  void plan_rows(Context& context);
  void keep_one_version();
  StepBudget budget() const;
  bool paused(const Sequence& sequence) const;
  bool may_go_on(const Sequence& sequence) const;
  BatchRow make_row(const Sequence& sequence) const;
  void submit(Context& context, const StepPlan& plan);
  void add_row(Batch& batch, uint32_t slot, uint32_t tokens);
  void take_copies(Batch& batch);
  void take_result(Context& context, RowResult& result);
  void take_scores(Context& context, Sequence& sequence, RowResult& result);

  // ---- decode_blocks.cpp: which blocks a sequence has, and who makes room
  bool grow(Context& context, uint32_t slot);
  bool shared(BlockId block) const;
  void keep_blocks(Sequence& sequence);
  std::optional<BlockLease> take_block(Context& context, uint32_t slot);
  bool make_room(Context& context, uint32_t needy);
  bool make_room_among_choices(Context& context, uint32_t needy);
  std::optional<BlockLease> free_block(Sequence& sequence);
  void set_aside(Sequence& sequence, bool everything);
  void drop_copies(const std::vector<BlockLease>& targets);
  void preempt(Context& context, uint64_t age);

  // ---- decode_output.cpp: what was decoded, and the end
  bool check(Context& context);
  bool check_sequence(Context& context, Sequence& sequence);
  TokenEntry entry_of(const Sequence& sequence, uint32_t seq) const;
  void deliver(const ActorId& gateway, const TokenEntry& entry);
  void send_deliveries(Context& context);
  void break_off(Context& context, Sequence& sequence, Finish finish);
  // The sequence leaves its slot; the blocks follow now, or after the step that writes them.
  void end(Context& context, uint32_t slot, Finish finish);
  void send_freed(Context& context, Freed freed);

  const DecodeOptions options_;
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
  WithdrawnMemory withdrawn_;
  Slots slots_;
  Transfers incoming_;
  std::vector<std::optional<Sequence>> sequences_;  // by slot
  Retained retained_;
  std::vector<Freed> after_step_;   // ended while the step under way writes their blocks
  std::vector<Copy> copies_;        // for the next step
  std::vector<BlockLease> copied_;  // what the step under way copies from

  const uint32_t step_tokens_max_;
  std::optional<StepId> step_;
  uint64_t last_step_ = 0;
  uint64_t last_age_ = 0;
  uint64_t steps_unchecked_ = 0;  // since the last look at what was decoded
  // Of plan_rows(), by slot: sequences that decode, those first that waited longest; and those
  // that catch up, oldest first.
  std::vector<uint64_t> ready_;
  std::vector<WaitingPrompt> behind_;
  struct Delivery {
    ActorId gateway;
    Tokens message;
  };
  std::vector<Delivery> deliveries_;  // of one step; one per gateway
  DecodeCounters counters_;
};

}  // namespace baton
