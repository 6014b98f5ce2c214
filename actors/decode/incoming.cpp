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
  return posted && std::all_of(pieces.begin(), pieces.end(),
                               [](const IncomingPiece& p) { return !p.open && p.verified(); });
}

KvTransfer Incoming::as_transfer() const {
  KvTransfer whole;
  whole.transfer = transfer;
  whole.peer = source;
  whole.request = request;
  whole.epoch = epoch;
  whole.plan = plan;
  whole.from_token = from_token;
  whole.tokens = tokens;
  whole.blocks = block_ids(blocks);
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
  const size_t n = incoming.slots.size();
  if (adopt.first.size() != n) return mismatch("choices", adopt.first.size(), n);
  if (adopt.committed.size() != n) return mismatch("choices", adopt.committed.size(), n);
  const uint64_t brought = adopt.prompt.size() + (n == 1 ? adopt.committed[0].size() : 0);
  if (brought != incoming.tokens) return mismatch("tokens", brought, incoming.tokens);
  for (size_t i = 0; i < n; ++i) {
    const TokenEntry& first = adopt.first[i];
    const uint64_t committed = adopt.committed[i].size();
    if (first.request != incoming.request) {
      return mismatch("request", first.request.value, incoming.request.value);
    }
    if (first.epoch != incoming.epoch) {
      return mismatch("epoch", first.epoch.value, incoming.epoch.value);
    }
    if (first.seq != committed) return mismatch("first token's number", first.seq, committed);
    if (i > 0 && first.choice <= adopt.first[i - 1].choice) {
      return mismatch("choice", first.choice, adopt.first[i - 1].choice + 1);
    }
    const bool goes_on = n > 1 && committed > 0 && first.finish == Finish::none;
    if (!first.has_token && !goes_on) return mismatch("first tokens", 0, 1);
  }
  return {};
}

}  // namespace baton
