#include "actors/decode/incoming.h"

#include <algorithm>

namespace baton {
namespace {

Error mismatch(const char* what, uint64_t got, uint64_t expected) {
  return {ErrorCode::bad_frame, std::string("the transfer does not match its reservation: ") +
                                    what + " " + std::to_string(got) + ", expected " +
                                    std::to_string(expected)};
}

}  // namespace

uint32_t Incoming::pieces_open() const {
  return static_cast<uint32_t>(
      std::count_if(pieces.begin(), pieces.end(), [](const IncomingPiece& p) { return p.open; }));
}

bool Incoming::complete() const {
  return std::all_of(pieces.begin(), pieces.end(),
                     [](const IncomingPiece& p) { return !p.open && p.verified(); });
}

KvTransfer Incoming::as_transfer() const {
  KvTransfer whole{transfer, source, request, epoch, {}};
  for (const IncomingPiece& piece : pieces) whole.pieces.push_back(piece.expected);
  return whole;
}

std::vector<KvPiece> Incoming::withdrawn() const {
  std::vector<KvPiece> found;
  for (const IncomingPiece& piece : pieces) {
    if (piece.withdrawn) found.push_back(piece.expected);
  }
  return found;
}

bool Incoming::corrupt() const {
  return std::any_of(pieces.begin(), pieces.end(),
                     [](const IncomingPiece& piece) { return piece.corrupt(); });
}

Result<void> check_adopt(const Incoming& incoming, const Adopt& adopt) {
  if (adopt.pieces != incoming.pieces.size()) {
    return mismatch("pieces", adopt.pieces, incoming.pieces.size());
  }
  if (adopt.first.size() != 1 || adopt.committed.size() != 1) {
    return mismatch("choices", adopt.first.size(), 1);
  }
  const uint64_t committed = adopt.committed[0].size();
  if (adopt.prompt.size() + committed != incoming.tokens) {
    return mismatch("tokens", adopt.prompt.size() + committed, incoming.tokens);
  }
  const TokenEntry& first = adopt.first[0];
  if (first.request != incoming.request) {
    return mismatch("request", first.request.value, incoming.request.value);
  }
  if (first.epoch != incoming.epoch) {
    return mismatch("epoch", first.epoch.value, incoming.epoch.value);
  }
  if (first.seq != committed) return mismatch("first token's number", first.seq, committed);
  if (first.choice != 0 || !first.has_token) return mismatch("choice", first.choice, 0);
  return {};
}

}  // namespace baton
