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
  const auto pieces =
      make_transfer(1, kPeer, blocks_of({5, 1, 9, 2, 7}), kGeometry, 2 * kBlock + 1, 100).pieces;
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[0].blocks == blocks_of({5, 1}));
  CHECK(pieces[1].blocks == blocks_of({9, 2}));
  CHECK(pieces[2].blocks == blocks_of({7}));
  for (uint32_t i = 0; i < 3; ++i) {
    CHECK(pieces[i].piece == i);
    CHECK(pieces[i].tag == 100 + i);
    CHECK(pieces[i].bytes == pieces[i].blocks.size() * kBlock);
  }
  CHECK(make_transfer(1, kPeer, {}, kGeometry, kBlock, 1).pieces.empty());
  CHECK(make_transfer(1, kPeer, blocks_of({1, 2}), kGeometry, 1, 1).pieces.size() == 2);
}

TEST_CASE("both sides divide alike, whatever their placements and block ids") {
  PlacementMaker make(3);
  for (int i = 0; i < 300; ++i) {
    const KvShape shape = make.shape();
    const Placement source = make.placement(shape, KvDtype::bf16);
    const Placement target = make.placement(shape, KvDtype::f32);
    const auto plan = plan_between(source, target, {make.roll(1, 3), 1u << make.roll(6, 14), true});
    const uint32_t tokens = make.roll(1, 300);
    const KvInstance a = KvInstance::make(source, tokens, make);
    const KvInstance b = KvInstance::make(target, tokens, make);
    const uint32_t from = make.roll(0, tokens / target.block_tokens) * target.block_tokens;
    const auto sends = divide_pieces(*plan, KvDirection::send, from, tokens, a.table, 7);
    const auto receives = divide_pieces(*plan, KvDirection::receive, from, tokens, b.table, 7);
    REQUIRE(sends.size() == receives.size());
    for (size_t p = 0; p < sends.size(); ++p) {
      CHECK(sends[p].part == receives[p].part);
      CHECK(sends[p].bytes == receives[p].bytes);
      CHECK(sends[p].tag == receives[p].tag);
      CHECK(receives[p].blocks.size() == receives[p].part.blocks);
      CHECK_FALSE(sends[p].blocks.empty());
    }
  }
}

TEST_CASE("a digest does not depend on how the bytes are cut") {
  std::vector<std::byte> bytes(300'000);
  std::mt19937_64 random(4);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  const uint64_t whole = digest_of({std::span(bytes)});
  CHECK(whole == hash64(bytes));
  for (int i = 0; i < 50; ++i) {
    Stretches parts;
    for (size_t at = 0; at < bytes.size();) {
      const size_t size = std::min<size_t>(1 + random() % 90'000, bytes.size() - at);
      parts.push_back(std::span(bytes).subspan(at, size));
      at += size;
    }
    CHECK(digest_of(parts) == whole);
  }
}

TEST_CASE("bytes are stored where they belong, whatever the slices and the stretches") {
  std::mt19937_64 random(14);
  std::vector<std::byte> wire(200'000);
  for (std::byte& b : wire) b = static_cast<std::byte>(random());
  for (int round = 0; round < 30; ++round) {
    std::vector<std::byte> memory(2 * wire.size(), std::byte{0xEE});
    std::vector<std::byte> expected = memory;
    Stretches target;
    size_t at = 0;
    for (size_t used = 0; used < wire.size();) {
      at += random() % 200;
      const size_t size = std::min<size_t>(1 + random() % 9'000, wire.size() - used);
      target.push_back(std::span(memory).subspan(at, size));
      std::memcpy(expected.data() + at, wire.data() + used, size);
      at += size;
      used += size;
    }
    PieceWriter writer(target);
    for (size_t used = 0; used < wire.size();) {
      CHECK_FALSE(writer.ended());
      const size_t size = std::min<size_t>(1 + random() % 40'000, wire.size() - used);
      writer.write(std::span<const std::byte>(wire).subspan(used, size));
      used += size;
    }
    CHECK(writer.ended());
    CHECK(memory == expected);
  }
}

TEST_CASE("a piece is read alike in slices and at once, packed or not") {
  std::mt19937_64 random(15);
  for (uint64_t seed = 0; seed < 60; ++seed) {
    PlacementMaker make(700 + seed);
    const KvShape shape{make.roll(1, 4), make.roll(1, 4), 16 * make.roll(1, 3)};
    const uint32_t tokens = make.roll(1, 200);
    const auto dtype = static_cast<KvDtype>(make.roll(0, 2));
    KvInstance source = KvInstance::make(make.placement(shape, dtype), tokens, make);
    source.fill(tokens);
    const auto plan =
        plan_between(source.placement, make.placement(shape, dtype), {1, 1 << 16, true});
    const KvTransfer transfer =
        make_transfer(1, kPeer, plan, KvDirection::send, 0, tokens, source.table, 0);
    const BlockStore store = store_of_instance(source);
    for (const KvPiece& piece : transfer.pieces) {
      std::vector<std::byte> whole(piece.bytes);
      pack_from(store, transfer, piece, whole);
      if (!plan->routes[piece.part.route].source_runs.empty()) {
        CHECK(hash64(whole) == digest_of(source_stretches(store, transfer, piece)));
      }
      std::vector<std::byte> sliced;
      PieceReader reader(store, transfer, piece);
      for (;;) {
        std::vector<std::byte> slice(reader.slice_bytes_min() + random() % 9'000);
        const size_t bytes = reader.read(slice);
        if (bytes == 0) break;
        sliced.insert(sliced.end(), slice.begin(),
                      slice.begin() + static_cast<std::ptrdiff_t>(bytes));
      }
      CHECK(sliced == whole);
    }
  }
}

TEST_CASE("a digest changes with any bit and with the order of blocks") {
  MemoryPool pool(kGeometry, 4);
  pool.fill(1);
  const auto table = blocks_of({2, 0, 3});
  const uint64_t before = pool.digest(table);
  CHECK(before == pool.digest(table));
  CHECK(before != pool.digest(blocks_of({0, 2, 3})));
  std::mt19937_64 random(5);
  for (int i = 0; i < 300; ++i) {
    const auto bytes = pool.bytes_of(table[random() % 3]);
    std::byte& hit = bytes[random() % bytes.size()];
    const auto bit = static_cast<std::byte>(1u << (random() % 8));
    hit ^= bit;
    CHECK(pool.digest(table) != before);
    hit ^= bit;
  }
}

TEST_CASE("a transfer that does not fit its pool is refused with a sentence") {
  MemoryPool pool(kGeometry, 8);
  auto text = [&](const KvTransfer& t) {
    return check_transfer(t, KvDirection::send, pool.store()).error().text;
  };
  const KvTransfer good = make_transfer(4, kPeer, blocks_of({1, 2, 3}), kGeometry, 2 * kBlock, 50);
  CHECK(check_transfer(good, KvDirection::send, pool.store()).ok());
  KvTransfer bad = good;
  bad.blocks[2] = BlockId{8};
  CHECK(text(bad) == "transfer 4 names block 8 of a pool of 8");
  bad = good;
  bad.blocks[2] = BlockId{1};
  CHECK(text(bad) == "transfer 4 names block 1 twice");
  bad = good;
  bad.blocks.pop_back();
  CHECK(text(bad) == "transfer 4 has a table of 2 blocks, its 48 tokens need 3");
  bad = good;
  bad.pieces[0].bytes += 1;
  CHECK(text(bad) == "piece 0 of transfer 4 at position 0 is not what its plan and tokens give");
  bad = good;
  bad.pieces[1].tag = 50;
  CHECK(text(bad) == "piece 1 of transfer 4 at position 1 is not what its plan and tokens give");
  bad = good;
  bad.pieces[1].blocks.clear();
  CHECK_FALSE(check_transfer(bad, KvDirection::send, pool.store()).ok());
  bad = good;
  bad.pieces.pop_back();
  CHECK(text(bad) == "transfer 4 has 1 pieces, its plan and tokens give 2");
  bad = good;
  bad.from_token = 8;
  CHECK(text(bad) ==
        "transfer 4 begins at token 8, which is not where a block of the target begins");
  bad = good;
  bad.plan = nullptr;
  CHECK(text(bad) == "transfer 4 has no plan");
  KvGeometry other = kGeometry;
  other.dtype = KvDtype::f16;
  const KvTransfer foreign = make_transfer(4, kPeer, blocks_of({1}), other, kBlock, 50);
  CHECK(text(foreign) == "transfer 4 follows a plan for an instance with another KV placement");
}

TEST_CASE(
    "row 43: an announcement that differs from the reservation is refused, sizes never trusted") {
  const KvTransfer mine = make_transfer(4, kPeer, blocks_of({1, 2, 3}), kGeometry, 2 * kBlock, 50);
  auto code = [&](const KvTransfer& t) { return verify_post(mine, t).error().code; };
  CHECK(verify_post(mine, mine).ok());
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
  CHECK(verify_post(mine, theirs).error().text ==
        "piece 1 of transfer 4 was announced with 4611686018427387904 bytes, its blocks have 1024");
  theirs = mine;
  theirs.pieces[1].tag = 99;
  CHECK(code(theirs) == ErrorCode::corrupt);
  theirs = mine;
  theirs.pieces[1].part.first_block = 0;
  CHECK(code(theirs) == ErrorCode::corrupt);
  theirs = mine;
  theirs.pieces.pop_back();
  CHECK(code(theirs) == ErrorCode::corrupt);
}

TEST_CASE("each piece has one terminal event, and its blocks are busy until then") {
  TransferTable table(8);
  const KvTransfer t = make_transfer(4, kPeer, blocks_of({6, 2, 3}), kGeometry, 2 * kBlock, 50);
  const ActorId owner{0, kDecodeSlot, 1};
  REQUIRE(table.open(KvDirection::receive, t, owner, 1000).ok());
  CHECK(table.open(KvDirection::receive, t, owner, 1000).error().code == ErrorCode::conflict);
  REQUIRE(table.open(KvDirection::send, t, owner, 1000).ok());
  CHECK(table.busy_blocks() == blocks_of({2, 3, 6}));
  const auto mail = table.end(KvDirection::receive, t.transfer, 0, {true, {}, 9, 8}, 3000);
  REQUIRE(mail.has_value());
  CHECK(mail->envelope.to == owner);
  CHECK(mail->envelope.epoch == Epoch{1});
  CHECK(decode_body<KvReceived>(mail->body, {})->digest == 9);
  CHECK(decode_body<KvReceived>(mail->body, {})->sent_digest == 8);
  CHECK_FALSE(
      table.end(KvDirection::receive, t.transfer, 0, {false, "late", 0, 0}, 3000).has_value());
  CHECK_FALSE(table.end(KvDirection::receive, TransferId{9}, 0, {}, 3000).has_value());
  CHECK(table.open_pieces(KvDirection::receive) == 1);
  CHECK(table.is_open(KvDirection::receive, t.transfer, 1));
  const auto sent = table.end(KvDirection::send, t.transfer, 1, {true, {}, 0, 0}, 3500);
  CHECK(decode_body<KvSent>(sent->body, {})->elapsed_us == 2500);
  REQUIRE(table.end(KvDirection::send, t.transfer, 0, {true, {}, 0, 0}, 3500).has_value());
  CHECK(table.busy_blocks() == blocks_of({3}));
  REQUIRE(table.end(KvDirection::receive, t.transfer, 1, {true, {}, 0, 0}, 3500).has_value());
  CHECK(table.busy_blocks().empty());
}

TEST_CASE("a full table says busy and opens nothing; what can never fit is refused") {
  TransferTable table(4);
  const KvTransfer t = make_transfer(4, kPeer, blocks_of({6, 2, 3}), kGeometry, kBlock, 50);
  const KvTransfer more = make_transfer(5, kPeer, blocks_of({1, 4}), kGeometry, kBlock, 60);
  REQUIRE(table.open(KvDirection::send, t, kPeer, 0).ok());
  const Result<void> refused = table.open(KvDirection::send, more, kPeer, 0);
  CHECK(refused.error().code == ErrorCode::busy);
  CHECK(refused.error().text == "3 pieces are under way and 2 more would exceed the limit of 4");
  CHECK(table.busy_blocks() == blocks_of({2, 3, 6}));
  KvTransfer nothing = more;
  nothing.pieces.clear();
  CHECK(table.open(KvDirection::send, nothing, kPeer, 0).ok());
  CHECK(table.open_pieces(KvDirection::send) == 3);
  TransferTable small(2);
  CHECK(small.open(KvDirection::send, t, kPeer, 0).error().code == ErrorCode::unsupported);
}
