#include "transport/kv/pieces.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {
namespace {

std::string number(uint64_t value) {
  return std::to_string(value);
}

Error bad_transfer(const KvTransfer& transfer, const std::string& text) {
  return Error{ErrorCode::invalid_argument,
               "transfer " + number(transfer.transfer.value) + " " + text};
}

Error bad_piece(ErrorCode code, const KvTransfer& transfer, uint32_t piece,
                const std::string& text) {
  return Error{code, "piece " + number(piece) + " of transfer " + number(transfer.transfer.value) +
                         " " + text};
}

const Placement& own_side(const RoutedPlan& plan, KvDirection direction) {
  return direction == KvDirection::send ? plan.plan.source : plan.plan.target;
}

Result<void> check_table(const KvTransfer& transfer, KvDirection direction,
                         const BlockStore& store) {
  const uint32_t block_tokens = store.placement.block_tokens;
  const size_t needed = (size_t{transfer.tokens} + block_tokens - 1) / block_tokens;
  if (!(own_side(*transfer.plan, direction) == store.placement)) {
    return bad_transfer(transfer, "follows a plan for an instance with another KV placement");
  }
  if (transfer.from_token % transfer.plan->plan.target.block_tokens != 0) {
    return bad_transfer(transfer, "begins at token " + number(transfer.from_token) +
                                      ", which is not where a block of the target begins");
  }
  if (transfer.blocks.size() < needed) {
    return bad_transfer(transfer, "has a table of " + number(transfer.blocks.size()) +
                                      " blocks, its " + number(transfer.tokens) + " tokens need " +
                                      number(needed));
  }
  std::vector<bool> seen(store.block_count);
  for (BlockId block : transfer.blocks) {
    if (block.value >= store.block_count) {
      return bad_transfer(transfer, "names block " + number(block.value) + " of a pool of " +
                                        number(store.block_count));
    }
    if (seen[block.value]) {
      return bad_transfer(transfer, "names block " + number(block.value) + " twice");
    }
    seen[block.value] = true;
  }
  return {};
}

}  // namespace

std::vector<KvPiece> divide_pieces(const RoutedPlan& plan, KvDirection direction,
                                   uint32_t from_token, uint32_t tokens,
                                   const std::vector<BlockId>& table, uint32_t tag_first) {
  std::vector<KvPiece> pieces;
  for (const TransferPiece& part : divide_transfer(plan, from_token, tokens)) {
    const Range touched = direction == KvDirection::send
                              ? source_blocks_of(plan, part, tokens)
                              : Range{part.first_block, part.first_block + part.blocks};
    CHECK(touched.end <= table.size());
    KvPiece& piece = pieces.emplace_back();
    piece.piece = static_cast<uint32_t>(pieces.size() - 1);
    piece.tag = tag_first + piece.piece;
    piece.blocks.assign(table.begin() + touched.begin, table.begin() + touched.end);
    piece.bytes = part.bytes;
    piece.part = part;
  }
  return pieces;
}

Result<void> check_transfer(const KvTransfer& transfer, KvDirection direction,
                            const BlockStore& store) {
  if (transfer.pieces.empty()) return {};
  if (!transfer.plan) return bad_transfer(transfer, "has no plan");
  if (const Result<void> table = check_table(transfer, direction, store); !table.ok()) return table;
  const std::vector<KvPiece> expected =
      divide_pieces(*transfer.plan, direction, transfer.from_token, transfer.tokens,
                    transfer.blocks, transfer.pieces.front().tag);
  if (transfer.pieces.size() != expected.size()) {
    return bad_transfer(transfer, "has " + number(transfer.pieces.size()) +
                                      " pieces, its plan and tokens give " +
                                      number(expected.size()));
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const KvPiece& piece = transfer.pieces[i];
    if (piece.piece != i || piece.tag != expected[i].tag || piece.part != expected[i].part ||
        piece.bytes != expected[i].bytes || piece.blocks != expected[i].blocks) {
      return bad_piece(ErrorCode::invalid_argument, transfer, piece.piece,
                       "at position " + number(i) + " is not what its plan and tokens give");
    }
  }
  return {};
}

Result<void> verify_post(const KvTransfer& expected, const KvTransfer& announced) {
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
    auto fail = [&](const std::string& text) {
      return bad_piece(ErrorCode::corrupt, expected, mine.piece, text);
    };
    if (theirs.piece != mine.piece || theirs.tag != mine.tag) {
      return fail("was announced as piece " + number(theirs.piece) + " with tag " +
                  number(theirs.tag) + ", reserved is tag " + number(mine.tag));
    }
    if (theirs.blocks != mine.blocks) return fail("was announced for other blocks");
    if (theirs.part.route != mine.part.route || theirs.part.first_block != mine.part.first_block) {
      return fail("was announced for another part of the cache");
    }
    if (theirs.bytes != mine.bytes) {
      return fail("was announced with " + number(theirs.bytes) + " bytes, its blocks have " +
                  number(mine.bytes));
    }
  }
  return {};
}

}  // namespace baton
