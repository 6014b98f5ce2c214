#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/common.h"
#include "actors/protocol/weights.h"
#include "actors/protocol/worker.h"

// What the scheduler says and hears, apart from joining and beats (worker.h).

namespace baton {

// Gateway -> scheduler: run this. The envelope carries the request, epoch 0 and the remaining time.
struct Admit {
  static constexpr MsgKind kind = MsgKind::admit;
  std::vector<TokenId> ids;  // the whole prompt; tokenised once, by the gateway
  uint32_t n = 1;
  SamplingParams sampling;
  StopParams stops;
  int32_t priority = 0;  // higher first
  std::string tenant;
  BATON_FIELDS(ids, n, sampling, stops, priority, tenant)
};

// Scheduler -> gateway: queued under the envelope's epoch. Sent again when the request is queued
// anew without a freeze (a refused reservation); the gateway takes over the epoch.
struct Admitted {
  static constexpr MsgKind kind = MsgKind::admitted;
  uint32_t queue_position = 0;
  BATON_FIELDS(queue_position)
};

struct AdmitRefused {
  static constexpr MsgKind kind = MsgKind::admit_refused;
  Refusal refusal;
  BATON_FIELDS(refusal)
};

// Gateway -> scheduler -> prefill and decode: stop this request, in whatever state it is.
// Idempotent; a worker answers Cancelled when nothing of it is left.
struct Cancel {
  static constexpr MsgKind kind = MsgKind::cancel;
  ErrorCode reason = ErrorCode::cancelled;
  BATON_FIELDS(reason)
};

// Worker -> scheduler: nothing of (request, epoch) runs any more. `pending_pieces` transfers still
// hold blocks, which go home by themselves.
struct Cancelled {
  static constexpr MsgKind kind = MsgKind::cancelled;
  uint32_t pending_pieces = 0;
  BATON_FIELDS(pending_pieces)
};

// Scheduler -> gateway: accept nothing of earlier epochs any more, and say what is committed. The
// envelope carries the new epoch.
struct Freeze {
  static constexpr MsgKind kind = MsgKind::freeze;
  std::string reason;
  BATON_FIELDS(reason)
};

// Gateway -> scheduler. `complete`: the stream has all its tokens; only bookkeeping was lost.
struct Frozen {
  static constexpr MsgKind kind = MsgKind::frozen;
  std::vector<std::vector<TokenId>> committed;  // per choice
  bool complete = false;
  std::vector<uint32_t> ended{};  // choices that have all their tokens, ascending
  BATON_FIELDS(committed, complete, ended)
};

// Gateway -> scheduler: the client has its result (or its end); free what is left.
struct Done {
  static constexpr MsgKind kind = MsgKind::done;
  Finish outcome = Finish::none;
  uint32_t completion_tokens = 0;
  BATON_FIELDS(outcome, completion_tokens)
};

struct DoneAck {
  static constexpr MsgKind kind = MsgKind::done_ack;
  Usage usage;
  BATON_FIELDS(usage)
};

// Scheduler -> gateway: the request ends here without a result (deadline, retries used up, ...).
struct Failed {
  static constexpr MsgKind kind = MsgKind::failed;
  Refusal refusal;
  BATON_FIELDS(refusal)
};

// One worker as `baton status` shows it.
struct WorkerStatus {
  uint32_t rank = 0;
  uint32_t incarnation = 0;
  Role role = Role::prefill;
  std::string host;
  std::string cores;
  bool alive = true;
  Capacity capacity;
  uint32_t slots_free = 0;
  uint32_t blocks_free = 0;
  uint32_t blocks_quarantined = 0;
  uint32_t queued = 0;
  uint32_t running = 0;
  uint64_t steps = 0;
  int64_t beat_age_us = 0;
  uint64_t model_hash = 0;
  std::vector<NamedCount> counters{};  // of the actor, since its life began
  uint32_t blocks_cached = 0;
  bool connected = false;         // KV plans are agreed on with everybody: it can be given work
  std::vector<uint64_t> weights;  // versions that requests may run on there
  std::string weights_trouble;    // why it has not the current one; empty if it has
  uint32_t tensor_parallel = 1;   // the instance's ranks are tensor_parallel x pipeline_parallel
  uint32_t pipeline_parallel = 1;
  uint32_t block_tokens = 16;
  KvDtype kv_dtype = KvDtype::bf16;
  BATON_FIELDS(rank, incarnation, role, host, cores, alive, capacity, slots_free, blocks_free,
               blocks_quarantined, queued, running, steps, beat_age_us, model_hash, counters,
               blocks_cached, connected, weights, weights_trouble, tensor_parallel,
               pipeline_parallel, block_tokens, kv_dtype)
};

// Gateway -> scheduler, for a client's status query; correlation is copied to the answer.
struct ClusterQuery {
  static constexpr MsgKind kind = MsgKind::cluster_query;
  bool reserved = false;
  BATON_FIELDS(reserved)
};

struct ClusterReply {
  static constexpr MsgKind kind = MsgKind::cluster_reply;
  std::vector<WorkerStatus> workers;
  std::vector<NamedCount> requests;  // per ledger state, live ones
  std::vector<NamedCount> leases;    // per lease state
  std::vector<NamedCount> counters;  // since start: admitted, finished, migrations, fenced, ...
  uint64_t weights_version = 0;      // that new requests run on; 0: no worker has joined yet
  UpdateReport update;               // the one that runs, or ran last
  uint32_t kv_layer_groups = 1;      // KV is handed over in so many
  bool kv_digests = true;            // and digested before and after its way
  BATON_FIELDS(workers, requests, leases, counters, weights_version, update, kv_layer_groups,
               kv_digests)
};

}  // namespace baton
