// What arrives for a reservation: announcement, pieces, hand-off record; together, a sequence.

#include <utility>

#include "actors/decode/decode.h"
#include "actors/worker/ending.h"
#include "runtime/base/check.h"
#include "transport/kv/pieces.h"

namespace baton {
namespace {

Routing routing_of(const Incoming& incoming) {
  return {incoming.request, incoming.epoch, 0, kNever};
}

// A transfer as far as its sender's words go.
KvTransfer named_only(TransferId transfer, const Envelope& from, std::vector<KvPiece> pieces) {
  KvTransfer named;
  named.transfer = transfer;
  named.peer = from.from;
  named.request = from.request;
  named.epoch = from.epoch;
  named.pieces = std::move(pieces);
  return named;
}

}  // namespace

void Decode::on(Context& context, const Envelope& from, KvPost& post) {
  const auto place = incoming_.find(post.transfer);
  const bool known = place != incoming_.end() && place->second.source == from.from &&
                     place->second.epoch == from.epoch;
  if (!known || place->second.closing) return refuse_post(context, from, post);
  Incoming& incoming = place->second;
  if (incoming.posted) {  // said twice
    ++counters_.stale;
    return;
  }
  incoming.posted = true;
  incoming.posted_us = context.now();
  incoming.progress_us = context.now();
  const KvTransfer announced = named_only(post.transfer, from, post.pieces);
  const Result<void> matched = verify_post(incoming.as_transfer(), announced);
  if (!matched.ok()) {
    const Refusal refusal{matched.error().code, matched.error().text, 0};
    context.send(from.from, KvNack{post.transfer, 0, refusal}, routing_of(incoming));
    fail_transfer(context, place, refusal);
    return settle(context);
  }
  try_activate(context, place);
  settle(context);
}

// The pieces come, but nobody wants them: the sender hears it, and what it has begun to send is
// taken in and thrown away, so that its blocks come free.
void Decode::refuse_post(Context& context, const Envelope& from, const KvPost& post) {
  ++counters_.stale;
  if (runs(post.transfer)) return;  // said twice: it runs already
  const Refusal refusal{ErrorCode::not_found, "the transfer is not expected (any more)", 0};
  context.send(from.from, KvNack{post.transfer, 0, refusal},
               {from.request, from.epoch, from.correlation, kNever});
  const auto place = incoming_.find(post.transfer);
  if (place != incoming_.end()) {
    Incoming& incoming = place->second;
    if (incoming.source != from.from || incoming.posted) return;
    incoming.posted = true;
    return drain(incoming, incoming.withdrawn());
  }
  KvTransfer unwanted = named_only(post.transfer, from, {});
  if (std::optional<std::vector<KvPiece>> withdrawn = withdrawn_.take(post.transfer)) {
    unwanted.pieces = std::move(*withdrawn);
  } else {
    unwanted.pieces = post.pieces;
  }
  if (!unwanted.pieces.empty()) mover_.drain(unwanted);
}

// Also for a sender whose life has ended: its process may go on, and with it what it had begun.
void Decode::drain(const Incoming& incoming, std::vector<KvPiece> pieces) {
  if (pieces.empty()) return;
  KvTransfer unwanted = incoming.as_transfer();
  unwanted.pieces = std::move(pieces);
  mover_.drain(unwanted);
}

void Decode::on(Context& context, const Envelope&, KvReceived& message) {
  const auto place = incoming_.find(message.transfer);
  if (place == incoming_.end() || message.piece >= place->second.pieces.size() ||
      !place->second.pieces[message.piece].open) {
    ++counters_.stale;
    return;
  }
  Incoming& incoming = place->second;
  IncomingPiece& piece = incoming.pieces[message.piece];
  piece.open = false;
  incoming.progress_us = context.now();
  piece.arrived = message.ok;
  piece.intact = message.ok && message.digest == message.sent_digest;
  if (incoming.closing) {
    piece.withdrawn = !message.ok;
    if (piece.withdrawn && incoming.posted) drain(incoming, {piece.expected});
    finish_closing(context, place);
  } else if (!message.ok) {
    const Refusal refusal{ErrorCode::worker_lost,
                          "a piece of the KV blocks did not arrive: " + message.reason, 0};
    context.send(incoming.source, KvNack{incoming.transfer, message.piece, refusal},
                 routing_of(incoming));
    fail_transfer(context, place, refusal);
  } else {
    check_piece(context, incoming, piece);
    try_activate(context, place);
  }
  settle(context);
}

// Says to the sender what became of a piece.
void Decode::check_piece(Context& context, Incoming& incoming, IncomingPiece& piece) {
  const uint32_t number = piece.expected.piece;
  if (piece.verified()) {
    context.send(incoming.source, KvDone{incoming.transfer, number}, routing_of(incoming));
  } else if (piece.corrupt()) {
    ++counters_.corrupt;
    context.send(incoming.source,
                 KvNack{incoming.transfer,
                        number,
                        {ErrorCode::corrupt, "the digest of the piece does not match", 0}},
                 routing_of(incoming));
  }
}

void Decode::on(Context& context, const Envelope& from, KvNack& message) {
  const auto place = incoming_.find(message.transfer);
  if (place == incoming_.end() || place->second.source != from.from ||
      place->second.epoch != from.epoch) {
    ++counters_.stale;
    return;
  }
  fail_transfer(context, place, message.refusal);
  settle(context);
}

void Decode::on(Context& context, const Envelope& from, Adopt& adopt) {
  const auto place = incoming_.find(adopt.transfer);
  const Routing routing{from.request, from.epoch, from.correlation, kNever};
  if (place == incoming_.end()) {
    ++counters_.stale;
    if (runs(adopt.transfer)) return;  // said twice: it runs already
    const AdoptFailed failed{adopt.transfer,
                             {ErrorCode::not_found, "the transfer is not expected (any more)", 0}};
    context.send(from.from, failed, routing);
    context.send(joining_.scheduler(), failed, routing);
    return;
  }
  Incoming& incoming = place->second;
  if (incoming.source != from.from || incoming.epoch != from.epoch || incoming.closing) {
    ++counters_.stale;
    context.send(from.from,
                 AdoptFailed{adopt.transfer,
                             {ErrorCode::stale, "the hand-off is for a life that is over", 0}},
                 routing);
    return;
  }
  if (incoming.adopt) return;
  incoming.progress_us = context.now();
  if (const Result<void> matched = check_adopt(incoming, adopt); !matched.ok()) {
    fail_transfer(context, place, {matched.error().code, matched.error().text, 0});
  } else if (weights_.resolve(adopt.weights_version) != incoming.weights) {
    fail_transfer(
        context, place,
        {ErrorCode::conflict,
         "the prompt was computed with weights version " + std::to_string(adopt.weights_version) +
             ", but the request was reserved for version " + std::to_string(incoming.weights),
         0});
  } else {
    incoming.adopt = std::move(adopt);
    try_activate(context, place);
  }
  settle(context);
}

// Decoding starts when the record and all pieces are there, whatever came first.
void Decode::try_activate(Context& context, Transfers::iterator place) {
  Incoming& incoming = place->second;
  if (incoming.corrupt()) {
    return fail_transfer(
        context, place,
        {ErrorCode::corrupt, "the KV blocks arrived with a digest that does not match", 0});
  }
  if (!incoming.adopt || !incoming.complete()) return;
  activate(context, incoming);
  incoming_.erase(place);
}

}  // namespace baton
