#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/protocol/common.h"
#include "actors/protocol/scheduler.h"
#include "runtime/actor/kv_mover.h"

// What a decode actor says and hears.

namespace baton {

// Scheduler -> decode: hold n slots, the blocks for the whole transfer and for what will be
// decoded. `source` is the prefill actor; its pieces will come under `transfer`, with tags
// from `tag_first`. The envelope carries request and epoch.
//
// One choice: the transfer brings the prompt and what is committed. Several: it brings the prompt,
// whose blocks they share, and each computes its own committed tokens here, `own_tokens` at most.
struct Reserve {
  static constexpr MsgKind kind = MsgKind::reserve;
  TransferId transfer;
  uint32_t tag_first = 0;
  ActorId source;
  PlanDigest plan;          // that both were connected by
  uint32_t tokens = 0;      // positions that the transfer brings (prompt + committed)
  uint32_t new_tokens = 0;  // positions that decoding may add
  uint32_t n = 1;           // choices that are to run
  uint32_t own_tokens = 0;  // committed tokens of the longest of several choices
  PrefixNames prefix;       // of the positions that the transfer brings
  // If no more than so many positions are missing, the decode actor is to compute them itself: it
  // posts no receives, says so, and gets Start. UINT32_MAX: there is no source at all.
  uint32_t local_tokens = 0;
  uint64_t weights_version = 0;  // that the request runs on; 0: the latest
  BATON_FIELDS(transfer, tag_first, source, plan, tokens, new_tokens, n, own_tokens, prefix,
               local_tokens, weights_version)

  bool has_source() const { return source != ActorId{}; }
};

// Decode -> scheduler: all of it is held and the receives are posted.
struct Reserved {
  static constexpr MsgKind kind = MsgKind::reserved;
  TransferId transfer;
  std::vector<SlotLease> slots;  // one per choice
  std::vector<BlockId> blocks;   // for the transfer, in table order, from hit_tokens on
  // Leading positions that are here already, from the prefix cache: whole blocks, and never all.
  uint32_t hit_tokens = 0;
  uint32_t blocks_held = 0;  // that others cannot have meanwhile
  bool local = false;        // no transfer is expected: Start may come
  BATON_FIELDS(transfer, slots, blocks, hit_tokens, blocks_held, local)
};

struct ReserveRefused {
  static constexpr MsgKind kind = MsgKind::reserve_refused;
  TransferId transfer;
  Refusal refusal;
  BATON_FIELDS(transfer, refusal)
};

// Scheduler -> decode: give back what Reserve took; the transfer is not wanted any more. Blocks
// with a receive under way go through quarantine.
struct Release {
  static constexpr MsgKind kind = MsgKind::release;
  TransferId transfer;
  BATON_FIELDS(transfer)
};

// Prefill -> decode, when the pieces are on their way: what comes. Their digests come with them.
struct KvPost {
  static constexpr MsgKind kind = MsgKind::kv_post;
  TransferId transfer;
  std::vector<KvPiece> pieces;  // blocks are the target's, as Run named them
  BATON_FIELDS(transfer, pieces)
};

// Decode -> prefill: the piece has arrived and its digest is right.
struct KvDone {
  static constexpr MsgKind kind = MsgKind::kv_done;
  TransferId transfer;
  uint32_t piece = 0;
  BATON_FIELDS(transfer, piece)
};

// Decode -> prefill: the piece (or the whole transfer) is not accepted.
struct KvNack {
  static constexpr MsgKind kind = MsgKind::kv_nack;
  TransferId transfer;
  uint32_t piece = 0;
  Refusal refusal;
  BATON_FIELDS(transfer, piece, refusal)
};

// Prefill -> decode: the hand-off record. Decoding starts when this and all pieces are there. The
// decode side keeps every entry, `first` included, until the gateway acknowledges it, so that it
// can answer Resend when prefill died with its own copy unsent.
struct Adopt {
  static constexpr MsgKind kind = MsgKind::adopt;
  TransferId transfer;
  uint32_t pieces = 0;
  ActorId gateway;
  std::vector<TokenId> prompt;                  // prompt ids
  std::vector<std::vector<TokenId>> committed;  // per choice: what the client already had
  // Per choice that runs, ascending: the token that prefill sampled, and sent too; or, of several
  // choices, one without a token where something is committed: decode goes on from that.
  std::vector<TokenEntry> first;
  SamplingParams sampling;
  StopParams stops;
  Usage usage;
  uint64_t weights_version = 0;
  // What PromptScores said, if asked for: decode says it again, in case prefill's copy died with
  // it.
  std::vector<float> prompt_logprobs;
  std::vector<std::vector<TokenLogprob>> prompt_top;
  BATON_FIELDS(transfer, pieces, gateway, prompt, committed, first, sampling, stops, usage,
               weights_version, prompt_logprobs, prompt_top)
};

// Scheduler -> decode, after a Reserved that is local: compute the prompt from the first position
// that is missing, and go on. The answer is Adopted, at once, and again when the prompt is done,
// with what it took; or AdoptFailed.
struct Start {
  static constexpr MsgKind kind = MsgKind::start;
  TransferId transfer;
  ActorId gateway;
  std::vector<TokenId> ids;                     // the prompt
  std::vector<std::vector<TokenId>> committed;  // per choice: what the client already has
  SamplingParams sampling;
  StopParams stops;
  Usage usage;
  BATON_FIELDS(transfer, gateway, ids, committed, sampling, stops, usage)
};

// Decode -> scheduler and prefill: the request runs here now; prefill's hold is over.
struct Adopted {
  static constexpr MsgKind kind = MsgKind::adopted;
  TransferId transfer;
  Usage usage;
  BATON_FIELDS(transfer, usage)
};

// Decode -> scheduler and prefill: it will not; the transfer failed or did not match.
struct AdoptFailed {
  static constexpr MsgKind kind = MsgKind::adopt_failed;
  TransferId transfer;
  Refusal refusal;
  BATON_FIELDS(transfer, refusal)
};

// Decode -> scheduler: the slot's sequence has ended (or was cancelled) and its blocks are back.
struct SlotFreed {
  static constexpr MsgKind kind = MsgKind::slot_freed;
  SlotLease slot;
  uint32_t choice = 0;
  uint32_t slots_free = 0;
  uint32_t blocks_free = 0;
  Finish finish = Finish::none;
  BATON_FIELDS(slot, choice, slots_free, blocks_free, finish)
};

// Decode -> scheduler: the sequence lost its slot to make room; it must be prefilled again.
struct Preempted {
  static constexpr MsgKind kind = MsgKind::preempted;
  SlotLease slot;
  BATON_FIELDS(slot)
};

}  // namespace baton
