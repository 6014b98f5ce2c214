#include "transport/kv/pieces.h"

#include <algorithm>

#include "runtime/base/check.h"
#include "runtime/base/hash.h"

namespace baton {
namespace {

std::string number(uint64_t value) {
  return std::to_string(value);
}

Error bad_piece(ErrorCode code, const KvTransfer& transfer, uint32_t piece,
                const std::string& text) {
  return Error{code, "piece " + number(piece) + " of transfer " + number(transfer.transfer.value) +
                         " " + text};
}

Result<void> check_piece(const KvTransfer& transfer, size_t index, const BlockStore& store,
                         uint64_t piece_bytes_max) {
  const KvPiece& piece = transfer.pieces[index];
  auto fail = [&](const std::string& text) {
    return bad_piece(ErrorCode::invalid_argument, transfer, piece.piece, text);
  };
  if (piece.piece != index) return fail("stands at position " + number(index));
  if (piece.blocks.empty()) return fail("has no blocks");
  for (BlockId block : piece.blocks) {
    if (block.value >= store.block_count) {
      return fail("names block " + number(block.value) + " of a pool of " +
                  number(store.block_count));
    }
  }
  const uint64_t bytes = piece.blocks.size() * store.geometry.block_bytes();
  if (piece.bytes != bytes) {
    return fail("says " + number(piece.bytes) + " bytes, its blocks have " + number(bytes));
  }
  if (piece.blocks.size() > 1 && bytes > piece_bytes_max) {
    return fail("has " + number(bytes) + " bytes, more than the " + number(piece_bytes_max) +
                " that one message may have");
  }
  return {};
}

}  // namespace

std::vector<KvPiece> divide_pieces(const std::vector<BlockId>& blocks, const KvGeometry& geometry,
                                   uint64_t piece_bytes_max, uint32_t tag_first) {
  const uint64_t block_bytes = geometry.block_bytes();
  CHECK(block_bytes > 0);
  const size_t per_piece = std::max<uint64_t>(1, piece_bytes_max / block_bytes);
  std::vector<KvPiece> pieces;
  for (size_t begin = 0; begin < blocks.size(); begin += per_piece) {
    const size_t end = std::min(begin + per_piece, blocks.size());
    KvPiece piece;
    piece.piece = static_cast<uint32_t>(pieces.size());
    piece.tag = tag_first + piece.piece;
    piece.blocks.assign(blocks.begin() + static_cast<std::ptrdiff_t>(begin),
                        blocks.begin() + static_cast<std::ptrdiff_t>(end));
    piece.bytes = piece.blocks.size() * block_bytes;
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

uint64_t digest_blocks(const BlockStore& store, const std::vector<BlockId>& blocks) {
  uint64_t digest = 0;
  for (BlockId block : blocks) {
    CHECK(block.value < store.block_count);
    digest = hash64(store.bytes(block), digest);
  }
  return digest;
}

Result<void> check_transfer(const KvTransfer& transfer, const BlockStore& store,
                            uint64_t piece_bytes_max) {
  std::vector<BlockId> blocks;
  std::vector<uint32_t> tags;
  for (size_t i = 0; i < transfer.pieces.size(); ++i) {
    Result<void> piece = check_piece(transfer, i, store, piece_bytes_max);
    if (!piece.ok()) return piece;
    tags.push_back(transfer.pieces[i].tag);
    blocks.insert(blocks.end(), transfer.pieces[i].blocks.begin(), transfer.pieces[i].blocks.end());
  }
  std::sort(blocks.begin(), blocks.end());
  if (auto twice = std::adjacent_find(blocks.begin(), blocks.end()); twice != blocks.end()) {
    return Error{ErrorCode::invalid_argument, "transfer " + number(transfer.transfer.value) +
                                                  " names block " + number(twice->value) +
                                                  " twice"};
  }
  std::sort(tags.begin(), tags.end());
  if (auto twice = std::adjacent_find(tags.begin(), tags.end()); twice != tags.end()) {
    return Error{ErrorCode::invalid_argument, "transfer " + number(transfer.transfer.value) +
                                                  " uses tag " + number(*twice) + " twice"};
  }
  return {};
}

Result<void> verify_post(const KvTransfer& expected, const KvTransfer& announced,
                         const BlockStore& store) {
  if (announced.transfer != expected.transfer) {
    return Error{ErrorCode::not_found, "transfer " + number(announced.transfer.value) +
                                           " was announced, " + number(expected.transfer.value) +
                                           " is reserved"};
  }
  if (announced.request != expected.request || announced.epoch != expected.epoch ||
      announced.peer != expected.peer) {
    return Error{ErrorCode::stale, "transfer " + number(expected.transfer.value) +
                                       " was announced for another life of the request or by "
                                       "another sender"};
  }
  if (announced.pieces.size() != expected.pieces.size()) {
    return Error{ErrorCode::corrupt, "transfer " + number(expected.transfer.value) +
                                         " was announced with " + number(announced.pieces.size()) +
                                         " pieces, " + number(expected.pieces.size()) +
                                         " are reserved"};
  }
  for (size_t i = 0; i < expected.pieces.size(); ++i) {
    const KvPiece& mine = expected.pieces[i];
    const KvPiece& theirs = announced.pieces[i];
    const uint64_t bytes = mine.blocks.size() * store.geometry.block_bytes();
    auto fail = [&](const std::string& text) {
      return bad_piece(ErrorCode::corrupt, expected, mine.piece, text);
    };
    if (theirs.piece != mine.piece || theirs.tag != mine.tag) {
      return fail("was announced as piece " + number(theirs.piece) + " with tag " +
                  number(theirs.tag) + ", reserved is tag " + number(mine.tag));
    }
    if (theirs.blocks != mine.blocks) return fail("was announced for other blocks");
    if (theirs.bytes != bytes) {
      return fail("was announced with " + number(theirs.bytes) + " bytes, its blocks have " +
                  number(bytes));
    }
  }
  return {};
}

Result<void> verify_arrival(const KvPiece& announced, const KvReceived& received) {
  if (!received.ok) {
    return Error{ErrorCode::unavailable, "piece " + number(announced.piece) + " of transfer " +
                                             number(received.transfer.value) +
                                             " did not arrive: " + received.reason};
  }
  if (announced.piece != received.piece || announced.digest != received.digest) {
    return Error{ErrorCode::corrupt, "piece " + number(received.piece) + " of transfer " +
                                         number(received.transfer.value) +
                                         " arrived with other bytes than were sent"};
  }
  return {};
}

}  // namespace baton
