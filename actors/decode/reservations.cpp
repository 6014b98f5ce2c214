// Reservations: how they are taken, and how they are given back.

#include <algorithm>
#include <utility>

#include "actors/decode/decode.h"
#include "runtime/base/check.h"
#include "transport/kv/pieces.h"

namespace baton {
namespace {

Routing routing_of(const Incoming& incoming) {
  return {incoming.request, incoming.epoch, 0, kNever};
}

// All that a reservation holds: for the transfer, and what each choice writes first. Choices that
// do not fit into the pool together run one after the other.
uint32_t blocks_of(const Reserve& wanted, const KvGeometry& geometry, uint32_t context_max,
                   uint32_t pool_blocks) {
  const uint32_t next = std::min(wanted.new_tokens, 1u);
  const uint32_t positions = std::min(wanted.tokens + wanted.own_tokens + next, context_max);
  const uint32_t own = 1 + wanted.own_tokens / geometry.block_tokens;
  const uint32_t first = geometry.blocks_for(positions);
  return std::min(first + (wanted.n - 1) * own, std::max(first, pool_blocks));
}

}  // namespace

bool Decode::runs(TransferId transfer) const {
  return std::any_of(sequences_.begin(), sequences_.end(), [&](const auto& sequence) {
    return sequence && sequence->transfer == transfer;
  });
}

std::optional<uint32_t> Decode::slot_of(RequestId request, uint32_t choice, Epoch epoch) const {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const std::optional<Sequence>& sequence = sequences_[slot];
    if (sequence && sequence->request == request && sequence->choice == choice &&
        sequence->epoch == epoch) {
      return slot;
    }
  }
  return std::nullopt;
}

std::optional<Refusal> Decode::refuse_now(const Envelope& from, const Reserve& wanted) const {
  if (cancelled_.covers(from.request, from.epoch)) {
    return Refusal{ErrorCode::cancelled, "the request was cancelled before it arrived here", 0};
  }
  const Micros again = options_.limits.retry_after_us / kMillisecond;
  if (joining_.draining() || !earlier_.over()) {
    return Refusal{ErrorCode::unavailable, "this decode instance takes no new requests", again};
  }
  if (dead_.covers(wanted.source)) {
    return Refusal{ErrorCode::unavailable, "the prefill worker of the request is gone", again};
  }
  const auto later = [&](const auto& life) {
    return life.request == from.request && life.epoch > from.epoch;
  };
  const bool outdated =
      std::any_of(incoming_.begin(), incoming_.end(),
                  [&](const auto& entry) { return later(entry.second); }) ||
      std::any_of(sequences_.begin(), sequences_.end(),
                  [&](const auto& sequence) { return sequence && later(*sequence); });
  if (outdated) return Refusal{ErrorCode::stale, "a later life of the request runs here", 0};
  return std::nullopt;
}

// What is wrong with the request itself, or with its source, so that waiting would not help.
std::optional<Refusal> Decode::find_fault(const Reserve& wanted) const {
  const KvGeometry& own = engine_.geometry();
  const KvGeometry& theirs = wanted.source_geometry;
  if (theirs != own) {
    const auto shape = [](const KvGeometry& g) {
      return std::to_string(g.layers) + " layers x " + std::to_string(g.kv_heads) + " heads x " +
             std::to_string(g.head_dim) + ", blocks of " + std::to_string(g.block_tokens) + ", " +
             dtype_name(g.dtype);
    };
    return Refusal{ErrorCode::unsupported,
                   "the KV store of the prefill instance has " + shape(theirs) +
                       ", that of this decode instance " + shape(own) +
                       "; no plan converts between them",
                   0};
  }
  if (wanted.n == 0 || wanted.n > slots_.size()) {
    return Refusal{ErrorCode::unsupported,
                   "the request asks for " + std::to_string(wanted.n) +
                       " choices, but this instance has " + std::to_string(slots_.size()) +
                       " slots; lower n or raise --max-num-seqs",
                   0};
  }
  if (wanted.tokens == 0) {
    return Refusal{ErrorCode::invalid_argument, "the transfer brings no positions", 0};
  }
  const uint32_t context_max = engine_.context_max();
  if (wanted.tokens > context_max) {
    return Refusal{ErrorCode::context_too_long,
                   "the prompt has " + std::to_string(wanted.tokens) +
                       " tokens, but the context holds " + std::to_string(context_max) +
                       "; shorten the prompt",
                   0};
  }
  if (own.blocks_for(wanted.tokens) > pool_.size()) {
    return Refusal{ErrorCode::unsupported,
                   "the request needs " + std::to_string(own.blocks_for(wanted.tokens)) +
                       " KV blocks, but the pool of this instance has " +
                       std::to_string(pool_.size()),
                   0};
  }
  return std::nullopt;
}

void Decode::on(Context& context, const Envelope& from, Reserve& wanted) {
  if (incoming_.count(wanted.transfer) > 0 || runs(wanted.transfer)) {
    ++counters_.stale;  // said twice: once is enough
    return;
  }
  const Routing routing{from.request, from.epoch, from.correlation, kNever};
  std::optional<Refusal> refusal = refuse_now(from, wanted);
  if (!refusal) refusal = find_fault(wanted);
  if (!refusal) {
    if (from.epoch.value > 0) end_lives(context, from.request, {from.epoch.value - 1});
    const Result<Reserved> held = reserve(context, from, wanted);
    if (held.ok()) {
      ++counters_.reserved;
      context.send(joining_.scheduler(), *held, routing);
      return;
    }
    refusal = Refusal{held.error().code, held.error().text,
                      options_.limits.retry_after_us / kMillisecond};
  }
  ++counters_.refused;
  context.send(joining_.scheduler(), ReserveRefused{wanted.transfer, std::move(*refusal)}, routing);
}

// Takes the slots, the blocks for the transfer and for what each choice writes first, and posts the
// receives; all of it or nothing.
Result<Reserved> Decode::reserve(Context& context, const Envelope& from, const Reserve& wanted) {
  const KvGeometry& geometry = engine_.geometry();
  if (slots_.free() < wanted.n) {
    return Error{ErrorCode::busy,
                 std::to_string(slots_.free()) + " of " + std::to_string(slots_.size()) +
                     " slots are free, the request needs " + std::to_string(wanted.n)};
  }
  const uint32_t needed = blocks_of(wanted, geometry, engine_.context_max(), pool_.size());
  Incoming incoming;
  incoming.blocks = pool_.take(needed);
  if (incoming.blocks.empty()) {
    return Error{ErrorCode::busy, "the request needs " + std::to_string(needed) +
                                      " KV blocks, of which " + std::to_string(pool_.free()) +
                                      " are free"};
  }
  incoming.transfer = wanted.transfer;
  incoming.request = from.request;
  incoming.epoch = from.epoch;
  incoming.source = wanted.source;
  incoming.tokens = wanted.tokens;
  incoming.progress_us = context.now();
  std::vector<BlockId> blocks = block_ids(incoming.blocks);
  blocks.resize(geometry.blocks_for(wanted.tokens));
  for (KvPiece& piece :
       divide_pieces(blocks, geometry, mover_.piece_bytes_max(), wanted.tag_first)) {
    incoming.pieces.emplace_back().expected = std::move(piece);
  }
  const Result<void> posted = mover_.expect(incoming.as_transfer(), context.self());
  if (!posted.ok()) return posted.error();
  while (incoming.slots.size() < wanted.n) incoming.slots.push_back(*slots_.take());

  Reserved reserved;
  reserved.transfer = wanted.transfer;
  reserved.slots = incoming.slots;
  reserved.blocks = std::move(blocks);
  reserved.blocks_held = needed;
  incoming_.emplace(wanted.transfer, std::move(incoming));
  return reserved;
}

void Decode::on(Context& context, const Envelope&, Release& message) {
  if (const auto place = incoming_.find(message.transfer); place != incoming_.end()) {
    close(context, place);
  } else if (!runs(message.transfer)) {
    ++counters_.stale;
  }
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const std::optional<Sequence>& sequence = sequences_[slot];
    if (!sequence || sequence->transfer != message.transfer) continue;
    retained_.drop(sequence->request, sequence->epoch);
    end(context, slot, Finish::cancelled);
  }
  settle(context);
}

void Decode::fail_transfer(Context& context, Transfers::iterator place, const Refusal& refusal) {
  Incoming& incoming = place->second;
  if (incoming.closing) return;
  ++counters_.transfers_failed;
  const AdoptFailed failed{incoming.transfer, refusal};
  context.send(joining_.scheduler(), failed, routing_of(incoming));
  context.send(incoming.source, failed, routing_of(incoming));
  close(context, place);
}

void Decode::close(Context& context, Transfers::iterator place) {
  Incoming& incoming = place->second;
  if (incoming.closing) return;
  incoming.closing = true;
  if (incoming.pieces_open() > 0) mover_.cancel(incoming.transfer);
  finish_closing(context, place);
}

void Decode::finish_closing(Context& context, Transfers::iterator place) {
  Incoming& incoming = place->second;
  if (incoming.pieces_open() > 0) return;
  if (!incoming.posted) {
    withdrawn_.note(incoming.transfer, incoming.withdrawn());
  }
  std::vector<Freed> freed;
  for (const SlotLease slot : incoming.slots) {
    const auto choice = static_cast<uint32_t>(freed.size());
    freed.push_back({incoming.request, incoming.epoch, slot, choice, Finish::cancelled, {}});
  }
  incoming_.erase(place);  // its blocks are home
  for (Freed& slot : freed) send_freed(context, std::move(slot));
}

}  // namespace baton
