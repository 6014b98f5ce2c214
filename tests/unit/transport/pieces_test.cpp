#include "transport/kv/pieces.h"

#include <doctest/doctest.h>

#include "tests/unit/transport/mover_fixture.h"
#include "transport/kv/transfer_table.h"

using namespace baton;
using namespace baton::test;

namespace {

const KvGeometry kGeometry{2, 1, 8, 16, KvDtype::bf16, InnerLayout::cpu_pairs};
const uint64_t kBlock = kGeometry.block_bytes();
const ActorId kPeer{1, 3, 1};

std::vector<BlockId> blocks_of(std::initializer_list<uint32_t> ids) {
  std::vector<BlockId> out;
  for (uint32_t id : ids) out.push_back(BlockId{id});
  return out;
}

}  // namespace

TEST_CASE("a transfer is divided into pieces of whole blocks, in table order, one tag each") {
  const auto pieces = divide_pieces(blocks_of({5, 1, 9, 2, 7}), kGeometry, 2 * kBlock + 1, 100);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].blocks == blocks_of({5, 1}));
  CHECK(pieces[1].blocks == blocks_of({9, 2}));
  CHECK(pieces[2].blocks == blocks_of({7}));
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(pieces[i].piece == i);
    CHECK(pieces[i].tag == 100 + i);
    CHECK(pieces[i].bytes == pieces[i].blocks.size() * kBlock);
  }
  CHECK(divide_pieces({}, kGeometry, kBlock, 1).empty());
  CHECK(divide_pieces(blocks_of({1, 2}), kGeometry, 1, 1).size() == 2);
}

TEST_CASE("both sides divide alike, whatever their block ids") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const auto count = static_cast<uint32_t>(random() % 40);
    const uint64_t most = kBlock * (1 + random() % 5);
    const auto a = divide_pieces(random_blocks(count, 64, random), kGeometry, most, 7);
    const auto b = divide_pieces(random_blocks(count, 64, random), kGeometry, most, 7);
    REQUIRE(a.size() == b.size());
    for (size_t p = 0; p < a.size(); ++p) {
      CHECK(a[p].bytes == b[p].bytes);
      CHECK(a[p].bytes <= most);
      CHECK(a[p].tag == b[p].tag);
    }
  }
}

TEST_CASE("a digest changes with any bit and with the order of blocks") {
  MemoryPool pool(kGeometry, 4);
  pool.fill(1);
  const auto table = blocks_of({2, 0, 3});
  const uint64_t before = digest_blocks(pool.store(), table);
  CHECK(before == digest_blocks(pool.store(), table));
  CHECK(before != digest_blocks(pool.store(), blocks_of({0, 2, 3})));
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const auto bytes = pool.bytes_of(table[random() % 3]);
    std::byte& hit = bytes[random() % bytes.size()];
    const auto bit = static_cast<std::byte>(1u << (random() % 8));
    hit ^= bit;
    CHECK(digest_blocks(pool.store(), table) != before);
    hit ^= bit;
  }
}

TEST_CASE("a transfer that does not fit its pool is refused with a sentence") {
  MemoryPool pool(kGeometry, 8);
  auto text = [&](KvTransfer t) {
    return check_transfer(t, pool.store(), 2 * kBlock).error().text;
  };
  const KvTransfer good = make_transfer(4, kPeer, blocks_of({1, 2, 3}), kGeometry, 2 * kBlock, 50);
  CHECK(check_transfer(good, pool.store(), 2 * kBlock).ok());
  KvTransfer bad = good;
  bad.pieces[1].blocks[0] = BlockId{8};
  CHECK(text(bad) == "piece 1 of transfer 4 names block 8 of a pool of 8");
  bad = good;
  bad.pieces[1].blocks[0] = BlockId{1};
  CHECK(text(bad) == "transfer 4 names block 1 twice");
  bad = good;
  bad.pieces[0].bytes += 1;
  CHECK(text(bad) == "piece 0 of transfer 4 says 2049 bytes, its blocks have 2048");
  bad = good;
  bad.pieces[1].tag = 50;
  CHECK(text(bad) == "transfer 4 uses tag 50 twice");
  bad = good;
  bad.pieces[1].piece = 7;
  CHECK(text(bad) == "piece 7 of transfer 4 stands at position 1");
  bad = good;
  bad.pieces[1].blocks.clear();
  CHECK(text(bad) == "piece 1 of transfer 4 has no blocks");
  bad = make_transfer(4, kPeer, blocks_of({1, 2, 3}), kGeometry, 3 * kBlock, 50);
  CHECK(text(bad) ==
        "piece 0 of transfer 4 has 3072 bytes, more than the 2048 that one message may have");
}

TEST_CASE(
    "row 43: an announcement that differs from the reservation is refused, sizes never trusted") {
  MemoryPool pool(kGeometry, 8);
  const KvTransfer mine = make_transfer(4, kPeer, blocks_of({1, 2, 3}), kGeometry, 2 * kBlock, 50);
  auto code = [&](const KvTransfer& t) { return verify_post(mine, t, pool.store()).error().code; };
  CHECK(verify_post(mine, mine, pool.store()).ok());
  KvTransfer theirs = mine;
  theirs.epoch = Epoch{2};
  CHECK(code(theirs) == ErrorCode::stale);
  theirs = mine;
  theirs.request = RequestId{41};
  CHECK(code(theirs) == ErrorCode::stale);
  theirs = mine;
  theirs.peer.incarnation = 2;
  CHECK(code(theirs) == ErrorCode::stale);
  theirs = mine;
  theirs.transfer = TransferId{5};
  CHECK(code(theirs) == ErrorCode::not_found);
  theirs = mine;
  theirs.pieces[0].blocks[0] = BlockId{4'000'000'000};
  CHECK(code(theirs) == ErrorCode::corrupt);
  theirs = mine;
  theirs.pieces[1].bytes = uint64_t{1} << 62;
  CHECK(verify_post(mine, theirs, pool.store()).error().text ==
        "piece 1 of transfer 4 was announced with 4611686018427387904 bytes, its blocks have 1024");
  theirs = mine;
  theirs.pieces[1].tag = 99;
  CHECK(code(theirs) == ErrorCode::corrupt);
  theirs = mine;
  theirs.pieces.pop_back();
  CHECK(code(theirs) == ErrorCode::corrupt);
}

TEST_CASE("an arrival is accepted only with the digest that was announced") {
  KvPiece announced;
  announced.piece = 2;
  announced.digest = 77;
  CHECK(verify_arrival(announced, {TransferId{4}, 2, true, {}, 77}).ok());
  CHECK(verify_arrival(announced, {TransferId{4}, 2, true, {}, 78}).error().code ==
        ErrorCode::corrupt);
  CHECK(verify_arrival(announced, {TransferId{4}, 2, false, "cancelled", 77}).error().text ==
        "piece 2 of transfer 4 did not arrive: cancelled");
}

TEST_CASE("each piece has one terminal event, and its blocks are busy until then") {
  TransferTable table(8);
  const KvTransfer t = make_transfer(4, kPeer, blocks_of({6, 2, 3}), kGeometry, 2 * kBlock, 50);
  const ActorId owner{0, kDecodeSlot, 1};
  REQUIRE(table.open(KvDirection::receive, t, owner, 1000).ok());
  CHECK(table.open(KvDirection::receive, t, owner, 1000).error().code == ErrorCode::conflict);
  REQUIRE(table.open(KvDirection::send, t, owner, 1000).ok());
  CHECK(table.busy_blocks() == blocks_of({2, 3, 6}));
  const auto mail = table.end(KvDirection::receive, t.transfer, 0, {true, {}, 9}, 3000);
  REQUIRE(mail.has_value());
  CHECK(mail->envelope.to == owner);
  CHECK(mail->envelope.epoch == Epoch{1});
  CHECK(decode_body<KvReceived>(mail->body, {})->digest == 9);
  CHECK_FALSE(table.end(KvDirection::receive, t.transfer, 0, {false, "late", 0}, 3000).has_value());
  CHECK_FALSE(table.end(KvDirection::receive, TransferId{9}, 0, {}, 3000).has_value());
  CHECK(table.open_pieces(KvDirection::receive) == 1);
  CHECK(table.is_open(KvDirection::receive, t.transfer, 1));
  const auto sent = table.end(KvDirection::send, t.transfer, 1, {true, {}, 0}, 3500);
  CHECK(decode_body<KvSent>(sent->body, {})->elapsed_us == 2500);
  REQUIRE(table.end(KvDirection::send, t.transfer, 0, {true, {}, 0}, 3500).has_value());
  CHECK(table.busy_blocks() == blocks_of({3}));
  REQUIRE(table.end(KvDirection::receive, t.transfer, 1, {true, {}, 0}, 3500).has_value());
  CHECK(table.busy_blocks().empty());
}

TEST_CASE("a full table says busy and opens nothing") {
  TransferTable table(2);
  const KvTransfer t = make_transfer(4, kPeer, blocks_of({6, 2, 3}), kGeometry, kBlock, 50);
  const Result<void> refused = table.open(KvDirection::send, t, kPeer, 0);
  CHECK(refused.error().code == ErrorCode::busy);
  CHECK(refused.error().text == "0 pieces are under way and 3 more would exceed the limit of 2");
  CHECK(table.busy_blocks().empty());
  KvTransfer nothing = t;
  nothing.pieces.clear();
  CHECK(table.open(KvDirection::send, nothing, kPeer, 0).ok());
  CHECK(table.open_pieces(KvDirection::send) == 0);
}
