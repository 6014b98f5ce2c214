// From the first token to the hand-off record: pieces, their announcement, Adopt.

#include <algorithm>
#include <utility>

#include "actors/prefill/prefill.h"
#include "actors/worker/deadline.h"
#include "runtime/base/check.h"
#include "transport/kv/pieces.h"

namespace baton {
namespace {

// The same pieces with the target's block ids, as the target knows them.
std::vector<KvPiece> as_target(const PrefillJob& job) {
  std::vector<KvPiece> posted = job.pieces;
  const std::vector<BlockId>& named = job.run.target_blocks;  // from from_token on
  const uint32_t before = job.run.from_token / job.plan->plan.target.block_tokens;
  for (KvPiece& piece : posted) {
    const uint32_t first = piece.part.first_block - before;
    CHECK(first + piece.part.blocks <= named.size());
    piece.blocks.assign(named.begin() + first, named.begin() + first + piece.part.blocks);
  }
  return posted;
}

}  // namespace

void Prefill::prepare_pieces(Context& context, PrefillJob& job) {
  job.pieces = divide_pieces(*job.plan, KvDirection::send, job.run.from_token, job.length(),
                             block_ids(job.blocks), job.run.tag_first);
  for (const KvPiece& piece : job.pieces) job.run.usage.kv_bytes += piece.bytes;
  job.hold_until_us = deadline_after(context.now(), options_.limits.stage_us);
}

// Gives the pieces to the mover, which packs and digests them, and tells all sides. A mover that is
// full is asked again when a piece of another transfer has ended.
void Prefill::start_sending(Context& context, Jobs::iterator place) {
  PrefillJob& job = place->second;
  if (!job.pieces.empty()) {
    KvTransfer transfer;
    transfer.transfer = place->first;
    transfer.peer = job.run.target;
    transfer.request = job.request;
    transfer.epoch = job.epoch;
    transfer.plan = job.plan;
    transfer.from_token = job.run.from_token;
    transfer.tokens = job.length();
    transfer.blocks = block_ids(job.blocks);
    transfer.pieces = job.pieces;
    const Result<void> begun = mover_.send(transfer, context.self());
    if (!begun && begun.error().code == ErrorCode::busy) return;  // stays `handing`
    if (!begun) {
      return fail(context, place,
                  {begun.error().code, "the KV blocks cannot be sent: " + begun.error().text, 0},
                  true);
    }
  }
  job.phase = JobPhase::sending;
  job.pieces_pending = static_cast<uint32_t>(job.pieces.size());
  counters_.pieces_sent += job.pieces.size();
  announce(context, place->first, job);
}

void Prefill::announce(Context& context, TransferId transfer, PrefillJob& job) {
  ++counters_.handed_over;
  const Routing routing{job.request, job.epoch, 0, remaining_until(job.deadline_us, context.now())};
  context.send(joining_.scheduler(), PrefillDone{transfer, job.run.usage, Finish::none}, routing);
  context.send(job.run.target, KvPost{transfer, as_target(job)}, routing);
  Adopt adopt;
  adopt.transfer = transfer;
  adopt.pieces = static_cast<uint32_t>(job.pieces.size());
  adopt.gateway = job.run.gateway;
  adopt.prompt = job.run.ids;
  adopt.committed = job.run.committed;
  adopt.first = job.first;
  adopt.sampling = job.run.sampling;
  adopt.stops = job.run.stops;
  adopt.usage = job.run.usage;
  adopt.weights_version = job.weights;
  adopt.prompt_logprobs = std::exchange(job.scores.logprobs, {});
  adopt.prompt_top = std::exchange(job.scores.top, {});
  context.send(job.run.target, adopt, routing);
}

void Prefill::retry_handing(Context& context) {
  for (auto job = jobs_.begin(); job != jobs_.end();) {
    const auto current = job++;
    if (current->second.phase == JobPhase::handing) start_sending(context, current);
  }
}

}  // namespace baton
