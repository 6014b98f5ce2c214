#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/actor/message.h"
#include "runtime/actor/sampling.h"
#include "runtime/actor/weights.h"
#include "runtime/layout/geometry.h"
#include "runtime/layout/placement.h"

namespace baton {

// Tokens of one sequence within a step: a whole prompt, a chunk of one, or one decoded token.
// Rows of a batch never see each other, except through the blocks they name: blocks may be read by
// many rows, and a block that a row writes is touched by no other row of the batch. A batch travels
// to the other ranks of an instance, but for `history`: only the first rank chooses tokens.
struct BatchRow {
  uint64_t key = 0;             // the caller's; comes back in the result
  std::vector<TokenId> tokens;  // to compute, ascending positions
  uint32_t position = 0;        // absolute position of tokens[0]; earlier ones are in the blocks
  std::vector<BlockId> blocks;  // cover [0, position + tokens.size())
  // Choices of the request for which the token that follows the last one is chosen, all from the
  // same logits. The choice is part of the random counter (numerics.md rule 9). None: no token.
  std::vector<uint32_t> samples{0};
  SamplingParams sampling;
  uint32_t prompt_tokens = 0;    // length of the prompt within `history`
  std::vector<TokenId> history;  // prompt, then output so far; filled only when penalties need it
  BATON_FIELDS(key, tokens, position, blocks, samples, sampling, prompt_tokens)
};

// A whole block copied within the KV store: how a sequence gets a block of its own out of one that
// it shared (copy-on-write). On every rank of an instance.
struct BlockCopy {
  BlockId from;
  BlockId to;  // never the `from` of another copy of the batch
  BATON_FIELDS(from, to)
};

struct Batch {
  StepId step;
  std::vector<BatchRow> rows;
  std::vector<BlockCopy> copies{};  // made before any row reads or writes
  uint64_t weights_version = 0;     // of all its rows; 0: the latest committed one
  BATON_FIELDS(step, rows, copies, weights_version)
};

struct RowSample {
  uint32_t choice = 0;
  TokenId token = 0;
  float logprob = 0;              // of `token`, if sampling.top_logprobs >= 0
  std::vector<TokenLogprob> top;  // best first
  BATON_FIELDS(choice, token, logprob, top)
};

struct RowResult {
  uint64_t key = 0;
  std::vector<RowSample> samples;      // as the row's, in its order
  std::vector<float> prompt_logprobs;  // of tokens[1..], if asked: log P(t | earlier ones)
  std::vector<std::vector<TokenLogprob>> prompt_top;
  bool numerical_error = false;  // NaN or Inf in the logits: the row has no token
  BATON_FIELDS(key, samples, prompt_logprobs, prompt_top, numerical_error)
};

// Delivered to the actor that submitted the batch.
struct StepDone {
  static constexpr MsgKind kind = MsgKind::step_done;
  StepId step;
  std::vector<RowResult> rows;
  int64_t compute_us = 0;
  BATON_FIELDS(step, rows, compute_us)
};

// A model on one instance, with its paged KV store. Actors submit from their thread; the work runs
// elsewhere and the result comes as StepDone mail. At most one batch is under way per engine.
class Engine {
 public:
  virtual ~Engine() = default;

  // Which rank of the instance owns which part of the KV cache; the same for the life of the
  // engine. The pools of all its ranks have the same number of blocks, and one block table of a
  // sequence serves them all.
  virtual const Placement& placement() const = 0;
  // Shape and layout of the KV store of the instance's first rank, which runs the actor.
  virtual const KvGeometry& geometry() const = 0;
  virtual uint32_t block_count() const = 0;
  // The bytes of one block of one rank's pool (an index into placement().ranks); thread-safe. The
  // holder of a lease on the block may read them, and write them while nothing else reads.
  virtual std::span<std::byte> block_bytes(uint32_t rank, BlockId block) = 0;
  // Of an instance of one rank.
  std::span<std::byte> block_bytes(BlockId block) { return block_bytes(0, block); }

  // Tokens that one step can take, and positions of one sequence.
  virtual uint32_t step_tokens_max() const = 0;
  virtual uint32_t context_max() const = 0;
  virtual uint32_t vocabulary() const = 0;

  // A batch is under way (one of an earlier life of the actor, perhaps).
  virtual bool busy() const = 0;
  // Starts a batch; StepDone goes to `reply_to`. CHECKs that no batch is under way.
  virtual void submit(Batch batch, ActorId reply_to) = 0;

  // ---- sets of weights (at most Limits::weight_sets_max in memory)
  // Reads, checks and packs a set beside those that are there, off the steps' threads. Steps go on;
  // WeightsPrepared goes to `reply_to`.
  virtual void prepare_weights(const WeightsOrder& order, ActorId reply_to) = 0;
  // Batches may name the version from now on. CHECKs that it is prepared.
  virtual void commit_weights(uint64_t version) = 0;
  // The set goes when the batch under way no longer needs it; a preparation ends and says nothing
  // more. An unknown version is ignored; kUncommittedWeights means all that are not committed.
  virtual void drop_weights(uint64_t version) = 0;
  // Those that are prepared, by version.
  virtual std::vector<WeightsInfo> weights() const = 0;

  // Identifies weights and numerics for Register: ranks that differ say exact: false.
  virtual uint64_t numerics_id() const = 0;
  virtual uint64_t model_hash() const = 0;
};

}  // namespace baton
