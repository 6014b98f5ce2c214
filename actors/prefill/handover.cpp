// From the first token to the hand-off record: pieces, their digests, Adopt.

#include <algorithm>
#include <utility>

#include "actors/prefill/prefill.h"
#include "actors/worker/deadline.h"
#include "runtime/base/check.h"
#include "transport/kv/pieces.h"

namespace baton {
namespace {

// The same pieces with the target's block ids, as the target knows them.
std::vector<KvPiece> as_target(const std::vector<KvPiece>& pieces,
                               const std::vector<BlockId>& target_blocks) {
  std::vector<KvPiece> posted = pieces;
  auto next = target_blocks.begin();
  for (KvPiece& piece : posted) {
    const auto end = next + static_cast<std::ptrdiff_t>(piece.blocks.size());
    piece.blocks.assign(next, end);
    next = end;
  }
  CHECK(next == target_blocks.end());
  return posted;
}

}  // namespace

void Prefill::prepare_pieces(Context& context, PrefillJob& job) {
  const KvGeometry& geometry = engine_.geometry();
  std::vector<BlockId> blocks = block_ids(job.blocks);
  blocks.erase(blocks.begin(), blocks.begin() + job.run.from_token / geometry.block_tokens);
  job.pieces = divide_pieces(blocks, geometry, mover_.piece_bytes_max(), job.run.tag_first);
  for (KvPiece& piece : job.pieces) {
    piece.digest = mover_.digest(piece);
    job.run.usage.kv_bytes += piece.bytes;
  }
  job.hold_until_us = deadline_after(context.now(), options_.limits.stage_us);
}

// Gives the pieces to the mover, then tells all sides. A mover that is full is asked again when a
// piece of another transfer has ended.
void Prefill::start_sending(Context& context, Jobs::iterator place) {
  PrefillJob& job = place->second;
  if (!job.pieces.empty()) {
    const KvTransfer transfer{place->first, job.run.target, job.request, job.epoch, job.pieces};
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
  announce(context, place->first, job);
}

void Prefill::announce(Context& context, TransferId transfer, PrefillJob& job) {
  ++counters_.handed_over;
  const Routing routing{job.request, job.epoch, 0, remaining_until(job.deadline_us, context.now())};
  context.send(joining_.scheduler(), PrefillDone{transfer, job.run.usage, Finish::none}, routing);
  context.send(job.run.target, KvPost{transfer, as_target(job.pieces, job.run.target_blocks)},
               routing);
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
  adopt.weights_version = options_.weights_version;
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
