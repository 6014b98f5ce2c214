#include "transport/inproc/inproc_mover.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>

#include "tests/unit/transport/mover_fixture.h"

using namespace baton;
using namespace baton::test;

namespace {

const KvGeometry kGeometry{2, 2, 8, 16, KvDtype::bf16, InnerLayout::cpu_pairs};
const ActorId kPrefill{0, kPrefillSlot, 1};
const ActorId kDecode{0, kDecodeSlot, 1};
constexpr uint32_t kBlocks = 128;

struct Movers {
  InprocExchange exchange;
  MemoryPool source_pool{kGeometry, kBlocks};
  MemoryPool target_pool{kGeometry, kBlocks};
  PieceEnds source_ends;
  PieceEnds target_ends;
  uint64_t piece_bytes_max = 3 * kGeometry.block_bytes();
  std::optional<InprocMover> source;
  std::optional<InprocMover> target;
  std::mt19937_64 random{11};
  std::vector<BlockId> targets = random_blocks(kBlocks, kBlocks, random);
  uint32_t next_tag = 1;

  Movers() {
    source.emplace(exchange, source_pool.store(), source_ends.sink());
    target.emplace(exchange, target_pool.store(), target_ends.sink());
    source_pool.fill(1);
  }
  struct Both {
    KvTransfer sends;
    KvTransfer receives;
  };
  // Transfers at the same time may read one block but never write one: targets are taken in
  // turn, so that none comes twice among the last kBlocks.
  std::vector<BlockId> next_targets(uint32_t count) {
    std::rotate(targets.begin(), targets.begin() + count, targets.end());
    return {targets.end() - count, targets.end()};
  }
  Both transfer(uint64_t id, uint32_t blocks) {
    Both both{
        make_transfer(id, kDecode, random_blocks(blocks, kBlocks, random), kGeometry,
                      piece_bytes_max, next_tag),
        make_transfer(id, kPrefill, next_targets(blocks), kGeometry, piece_bytes_max, next_tag)};
    next_tag += static_cast<uint32_t>(both.sends.pieces.size());
    return both;
  }
  bool arrived(const Both& both) {
    for (size_t p = 0; p < both.sends.pieces.size(); ++p) {
      for (size_t b = 0; b < both.sends.pieces[p].blocks.size(); ++b) {
        if (!target_pool.same(both.receives.pieces[p].blocks[b], source_pool,
                              both.sends.pieces[p].blocks[b])) {
          return false;
        }
      }
    }
    return true;
  }
};

}  // namespace

TEST_CASE("blocks move between two pools of one process, with the digests that were sent") {
  Movers m;
  for (uint64_t id = 1; id <= 50; ++id) {
    const auto both = m.transfer(id, 1 + static_cast<uint32_t>(id % 20));
    const bool send_first = id % 2 == 0;
    if (!send_first) REQUIRE(m.target->expect(both.receives, kDecode).ok());
    REQUIRE(m.source->send(both.sends, kPrefill).ok());
    if (send_first) REQUIRE(m.target->expect(both.receives, kDecode).ok());
    const size_t total = m.next_tag - 1;
    REQUIRE(m.target_ends.wait_received(total));
    REQUIRE(m.source_ends.wait_sent(total));
    CHECK(m.arrived(both));
    for (const KvPiece& piece : both.sends.pieces) {
      const auto received = m.target_ends.received().at({TransferId{id}, piece.piece});
      CHECK(received.ok);
      CHECK(received.digest == m.source_pool.digest(piece.blocks));
      CHECK(received.sent_digest == received.digest);
    }
  }
  CHECK(m.source->busy_blocks().empty());
  CHECK(m.target->busy_blocks().empty());
  CHECK(m.source_ends.repeated() + m.target_ends.repeated() == 0);
  CHECK(m.target_ends.last().to == kDecode);
  CHECK(m.target_ends.last().request == RequestId{500});
}

TEST_CASE(
    "a cancelled receive ends at once, its blocks untouched; drain ends the sender's pieces") {
  Movers m;
  const auto both = m.transfer(1, 7);
  REQUIRE(m.target->expect(both.receives, kDecode).ok());
  CHECK(m.target->busy_blocks().size() == 7);
  m.target->cancel(TransferId{1});
  CHECK(m.target->busy_blocks().empty());
  REQUIRE(m.target_ends.wait_received(3));
  CHECK_FALSE(m.target_ends.received().at({TransferId{1}, 0}).ok);
  REQUIRE(m.source->send(both.sends, kPrefill).ok());
  CHECK_FALSE(m.source_ends.wait_sent(1, 50));
  CHECK(m.source->busy_blocks().size() == 7);
  m.target->drain(both.receives);
  REQUIRE(m.source_ends.wait_sent(3));
  CHECK(m.source_ends.sent().at({TransferId{1}, 2}).ok);
  CHECK(m.source->busy_blocks().empty());
  const std::byte untouched{0};
  for (BlockId block : both.receives.pieces[0].blocks) {
    CHECK(m.target_pool.bytes_of(block)[0] == untouched);
  }
  // The other order: drained before it is sent.
  const auto later = m.transfer(2, 4);
  m.target->drain(later.receives);
  REQUIRE(m.source->send(later.sends, kPrefill).ok());
  CHECK(m.source_ends.wait_sent(5));
  m.target->cancel(TransferId{77});  // unknown: ignored
}

TEST_CASE("a cancelled send that nobody waits for ends at once") {
  Movers m;
  const auto both = m.transfer(1, 4);
  REQUIRE(m.source->send(both.sends, kPrefill).ok());
  m.source->cancel(TransferId{1});
  REQUIRE(m.source_ends.wait_sent(2));
  CHECK(m.source_ends.sent().at({TransferId{1}, 1}).reason == "cancelled");
}

TEST_CASE("when a peer's life ends, what waits for it ends too, and nothing else does") {
  Movers m;
  const auto to_old = m.transfer(1, 2);
  auto to_new = m.transfer(2, 2);
  to_new.sends.peer.incarnation = 2;
  REQUIRE(m.source->send(to_old.sends, kPrefill).ok());
  REQUIRE(m.source->send(to_new.sends, kPrefill).ok());
  m.source->peer_down(0, 1);
  REQUIRE(m.source_ends.wait_sent(1));
  CHECK_FALSE(m.source_ends.sent().at({TransferId{1}, 0}).ok);
  CHECK_FALSE(m.source_ends.wait_sent(2, 30));
  m.source->peer_down(0, kAnyIncarnation);
  CHECK(m.source_ends.wait_sent(2));
}

TEST_CASE("a transfer that does not fit is refused, and one too many is told to wait") {
  Movers m;
  auto both = m.transfer(1, 4);
  both.sends.blocks[0] = BlockId{kBlocks};
  CHECK(m.source->send(both.sends, kPrefill).error().code == ErrorCode::invalid_argument);
  CHECK(m.source->busy_blocks().empty());
  Result<void> last;
  for (uint64_t id = 2; id < 20000 && last.ok(); ++id) {
    last = m.source->send(m.transfer(id, 3).sends, kPrefill);
  }
  REQUIRE_FALSE(last.ok());
  CHECK(last.error().code == ErrorCode::busy);
}

TEST_CASE("sides that were connected by different terms fail aloud instead of copying beyond") {
  Movers m;
  const auto both = m.transfer(1, 2);
  const KvTransfer smaller = make_transfer(1, kPrefill, {BlockId{3}, BlockId{4}}, kGeometry,
                                           kGeometry.block_bytes(), both.sends.pieces[0].tag);
  REQUIRE(m.target->expect(smaller, kDecode).ok());
  REQUIRE(m.source->send(both.sends, kPrefill).ok());
  REQUIRE(m.target_ends.wait_received(1));
  CHECK(m.target_ends.received().at({TransferId{1}, 0}).reason ==
        "the sender's piece has 4096 bytes, this side's 2048");
}

TEST_CASE("reshards move every element between the pools of all ranks, with equal digests") {
  PlacementMaker make(21);
  for (int i = 0; i < 300; ++i) {
    CAPTURE(i);
    const KvShape shape = make.shape();
    const auto dtype = static_cast<KvDtype>(make.roll(0, 2));
    const uint32_t tokens = make.roll(1, 100);
    KvInstance a = KvInstance::make(make.placement(shape, dtype), tokens, make);
    KvInstance b = KvInstance::make(make.placement(shape, static_cast<KvDtype>(make.roll(0, 2))),
                                    tokens, make);
    a.fill(tokens);
    const bool digests = make.roll(0, 3) > 0;
    const auto plan =
        plan_between(a.placement, b.placement, {make.roll(1, 3), 1u << make.roll(8, 14), digests});
    const uint32_t size = b.placement.block_tokens;
    const uint32_t from = make.roll(0, tokens / size) * size;
    InprocExchange exchange;
    PieceEnds sent;
    PieceEnds received;
    InprocMover source(exchange, store_of_instance(a), sent.sink());
    InprocMover target(exchange, store_of_instance(b), received.sink());
    const KvTransfer here =
        make_transfer(1, kDecode, plan, KvDirection::send, from, tokens, a.table, 1);
    const KvTransfer there =
        make_transfer(1, kPrefill, plan, KvDirection::receive, from, tokens, b.table, 1);
    REQUIRE(target.expect(there, kDecode).ok());
    REQUIRE(source.send(here, kPrefill).ok());
    REQUIRE(received.wait_received(here.pieces.size()));
    REQUIRE(sent.wait_sent(here.pieces.size()));
    CHECK(wrong_elements(b, dtype, from, tokens) == 0);
    for (const auto& [key, end] : received.received()) {
      CHECK(end.ok);
      CHECK(end.digest == end.sent_digest);
      CHECK((end.digest != 0) == digests);
    }
  }
}

TEST_CASE("a mover can be taken down while transfers run, and the other side hears of it") {
  for (int round = 0; round < 50; ++round) {
    Movers m;
    for (uint64_t id = 1; id <= 20; ++id) {
      const auto both = m.transfer(id, 6);
      REQUIRE(m.target->expect(both.receives, kDecode).ok());
      REQUIRE(m.source->send(both.sends, kPrefill).ok());
    }
    m.target.reset();
    REQUIRE(m.source_ends.wait_sent(40));
    CHECK(m.source->busy_blocks().empty());
    CHECK(m.source_ends.repeated() == 0);
  }
}
