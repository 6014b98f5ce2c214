#include "runtime/layout/transfer.h"

#include <doctest/doctest.h>

#include <set>

#include "tests/unit/layout/kv_instance.h"

using namespace baton;
using namespace baton::test;

namespace {

// What travels: pieces packed here, put in place there. Counts how often each target byte is
// written, and says how many bytes were packed otherwise than read straight from the source.
struct Carrier {
  std::vector<std::vector<uint8_t>> writes;
  int unequal = 0;

  void carry(const RoutedPlan& routed, uint32_t from_token, uint32_t tokens, KvInstance& source,
             KvInstance& target) {
    writes.clear();
    for (const auto& pool : target.pools) writes.emplace_back(pool.size(), uint8_t{0});
    for (const TransferPiece& piece : divide_transfer(routed, from_token, tokens)) {
      std::vector<std::byte> wire(piece.bytes);
      pack_piece(routed, piece, tokens, source_pointers(routed, piece, tokens, source), wire);
      if (!routed.routes[piece.route].source_runs.empty()) {
        unequal += wire != read_straight(routed, piece, source);
      }
      scatter(routed, piece, wire, target);
    }
  }

 private:
  static std::vector<std::byte> read_straight(const RoutedPlan& routed, const TransferPiece& piece,
                                              KvInstance& source) {
    const Route& route = routed.routes[piece.route];
    std::vector<std::byte> wire;
    for (uint32_t i = 0; i < piece.blocks; ++i) {
      const auto block = source.bytes(route.source_rank, source.table[piece.first_block + i]);
      for (const BlockRun& run : route.source_runs) {
        const auto part = block.subspan(run.offset, run.bytes);
        wire.insert(wire.end(), part.begin(), part.end());
      }
    }
    return wire;
  }

  void scatter(const RoutedPlan& routed, const TransferPiece& piece,
               const std::vector<std::byte>& wire, KvInstance& target) {
    const Route& route = routed.routes[piece.route];
    size_t next = 0;
    for (uint32_t i = 0; i < piece.blocks; ++i) {
      const auto block = target.bytes(route.target_rank, target.table[piece.first_block + i]);
      for (const BlockRun& run : route.target_runs) {
        std::memcpy(block.data() + run.offset, wire.data() + next, run.bytes);
        next += run.bytes;
        const auto at = block.data() + run.offset - target.pools[route.target_rank].data();
        for (uint64_t b = 0; b < run.bytes; ++b) {
          ++writes[route.target_rank][static_cast<size_t>(at) + b];
        }
      }
    }
    CHECK(next == wire.size());
  }
};

// Wrong elements, and bytes that were written otherwise than once each in the blocks from
// from_token on.
int wrong_elements(KvInstance& target, KvDtype source_dtype, uint32_t from_token, uint32_t tokens,
                   const Carrier& carrier) {
  int wrong = test::wrong_elements(target, source_dtype, from_token, tokens);
  const uint32_t block_tokens = target.placement.block_tokens;
  for (uint32_t rank = 0; rank < target.pools.size(); ++rank) {
    const size_t block_bytes = target.placement.geometry(rank).block_bytes();
    std::vector<uint8_t> expected(target.blocks, 0);
    for (uint32_t i = from_token / block_tokens; i < target.table.size(); ++i) {
      expected[target.table[i].value] = 1;
    }
    for (size_t i = 0; i < carrier.writes[rank].size(); ++i) {
      if (carrier.writes[rank][i] != expected[i / block_bytes]) ++wrong;
    }
  }
  return wrong;
}

Placement parallel(uint32_t tensor, uint32_t block_tokens = 16, KvDtype dtype = KvDtype::bf16,
                   uint32_t pipeline = 1) {
  PlacementOptions o;
  o.shape = {4, 8, 64};
  o.query_heads = 32;
  o.tensor_parallel = tensor;
  o.pipeline_parallel = pipeline;
  o.block_tokens = block_tokens;
  o.dtype = dtype;
  return *make_placement(o);
}

RoutedPlan routed(const Placement& source, const Placement& target, const PairTerms& terms) {
  return route_plan(*plan_reshard(source, target), terms);
}

}  // namespace

TEST_CASE("10,000 random reshards bring every element to its place once, and back again") {
  PlacementMaker make(7);
  Carrier carrier;
  for (int i = 0; i < 10'000; ++i) {
    CAPTURE(i);
    const KvShape shape = make.shape();
    const auto source_dtype = static_cast<KvDtype>(make.roll(0, 2));
    const auto target_dtype =
        make.roll(0, 1) ? source_dtype : static_cast<KvDtype>(make.roll(0, 2));
    const uint32_t tokens = make.roll(0, i % 10 == 0 ? 140 : 40);
    KvInstance a = KvInstance::make(make.placement(shape, source_dtype), tokens, make);
    KvInstance b = KvInstance::make(make.placement(shape, target_dtype), tokens, make);
    a.fill(tokens);
    const PairTerms terms{make.roll(1, 3), uint64_t{1} << make.roll(6, 14)};
    const RoutedPlan there = routed(a.placement, b.placement, terms);
    const uint32_t block_tokens = b.placement.block_tokens;
    const uint32_t from =
        make.roll(0, 1) ? 0
                        : make.roll(0, (tokens + block_tokens - 1) / block_tokens) * block_tokens;
    carrier.carry(there, from, tokens, a, b);
    REQUIRE(wrong_elements(b, source_dtype, from, tokens, carrier) == 0);
    if (from > 0 || !there.plan.exact) continue;
    KvInstance again = KvInstance::make(a.placement, tokens, make);
    carrier.carry(routed(b.placement, a.placement, terms), 0, tokens, b, again);
    // The way back brings the very bits that the way there took.
    REQUIRE(wrong_elements(again, source_dtype, 0, tokens, carrier) == 0);
  }
  CHECK(carrier.unequal == 0);
}

TEST_CASE("pieces are bounded, cover the transfer once, and are never more than pieces_max") {
  PlacementMaker make(8);
  for (int i = 0; i < 5'000; ++i) {
    CAPTURE(i);
    const KvShape shape = make.shape();
    const Placement source = make.placement(shape, KvDtype::bf16);
    const Placement target = make.placement(shape, KvDtype::f32);
    const PairTerms terms{make.roll(1, 6), uint64_t{1} << make.roll(4, 16)};
    const RoutedPlan there = routed(source, target, terms);
    const uint32_t tokens = make.roll(1, 2000);
    const uint32_t blocks = (tokens + target.block_tokens - 1) / target.block_tokens;
    const uint32_t first = make.roll(0, blocks);
    const auto pieces = divide_transfer(there, first * target.block_tokens, tokens);
    CHECK(pieces.size() <= pieces_max(there, tokens));
    std::vector<uint64_t> bytes(target.ranks.size(), 0);
    for (const TransferPiece& piece : pieces) {
      const Route& route = there.routes[piece.route];
      CHECK(piece.bytes == piece.blocks * route.block_bytes);
      CHECK((piece.blocks == 1 || piece.bytes <= terms.piece_bytes_max));
      CHECK(piece.bytes <= there.piece_bytes_largest());
      CHECK(piece.first_block >= first);
      CHECK(piece.first_block + piece.blocks <= blocks);
      bytes[route.target_rank] += piece.bytes;
    }
    for (uint32_t rank = 0; rank < target.ranks.size(); ++rank) {
      CHECK(bytes[rank] == (blocks - first) * target.geometry(rank).block_bytes());
    }
  }
}

TEST_CASE("between equal placements a piece is whole blocks, each one run that needs no packing") {
  const RoutedPlan there = routed(parallel(2), parallel(2), {1, uint64_t{1} << 20});
  CHECK_FALSE(there.packs());
  REQUIRE(there.routes.size() == 2);
  for (const Route& route : there.routes) {
    const uint64_t block = parallel(2).geometry(0).block_bytes();
    CHECK(route.source_rank == route.target_rank);
    CHECK(route.target_runs == std::vector<BlockRun>{{0, block}});
    CHECK(route.source_runs == route.target_runs);
  }
}

TEST_CASE("one message per peer, layer group and run of blocks") {
  const RoutedPlan there = routed(parallel(4), parallel(2, 32), {2, uint64_t{1} << 30});
  CHECK(there.packs());
  // 2 groups x 2 targets x 2 sources each.
  CHECK(there.routes.size() == 8);
  CHECK(divide_transfer(there, 0, 1000).size() == 8);
  std::set<std::tuple<uint32_t, uint32_t, uint32_t>> peers;
  for (const Route& route : there.routes) {
    CHECK(peers.insert({route.layer_group, route.source_rank, route.target_rank}).second);
  }
  // Groups come one after the other: the first layers can leave first.
  CHECK(there.routes[3].layer_group == 0);
  CHECK(there.routes[4].layer_group == 1);
}

TEST_CASE("T44: a prompt that ends on a block boundary brings no block more, one token later one") {
  const RoutedPlan there = routed(parallel(1), parallel(1), {1, uint64_t{1} << 30});
  CHECK(divide_transfer(there, 0, 32)[0].blocks == 2);
  CHECK(divide_transfer(there, 0, 33)[0].blocks == 3);
  CHECK(divide_transfer(there, 32, 33)[0].first_block == 2);
  CHECK(divide_transfer(there, 32, 33)[0].blocks == 1);
}

TEST_CASE("T46: a target that has everything already is brought nothing") {
  const RoutedPlan there = routed(parallel(2, 64), parallel(1, 16), {3, 4096});
  CHECK(divide_transfer(there, 64, 64).empty());
  CHECK(divide_transfer(there, 64, 60).empty());
  CHECK(divide_transfer(there, 0, 0).empty());
  CHECK(pieces_max(there, 0) == 0);
}

TEST_CASE("T47: both sides count the same pieces, whatever the target has already") {
  const RoutedPlan there = routed(parallel(2), parallel(4, 32), {2, 64 << 10});
  for (uint32_t from = 0; from <= 320; from += 32) {
    const auto pieces = divide_transfer(there, from, 301);
    CHECK(pieces == divide_transfer(there, from, 301));
    CHECK(pieces.size() <= pieces_max(there, 301));
    CHECK(pieces.empty() == (from >= 301));
  }
}

TEST_CASE("T100: the largest message follows from the plan, not from anybody's memory") {
  const RoutedPlan there = routed(parallel(8), parallel(16, 64, KvDtype::f32), {1, 100});
  uint64_t largest = 0;
  for (const Route& route : there.routes) largest = std::max(largest, route.block_bytes);
  CHECK(there.piece_bytes_largest() == largest);  // one block of the target
  const RoutedPlan wide = routed(parallel(8), parallel(16, 64, KvDtype::f32), {1, 10 * largest});
  CHECK(wide.piece_bytes_largest() <= 10 * largest);
}

TEST_CASE("T41: stages of other bounds pair layers by number, not by position") {
  PlacementMaker make(3);
  Carrier carrier;
  KvInstance a = KvInstance::make(parallel(1, 16, KvDtype::bf16, 4), 40, make);
  KvInstance b = KvInstance::make(parallel(2, 16, KvDtype::bf16, 3), 40, make);
  a.fill(40);
  carrier.carry(routed(a.placement, b.placement, {1, 1 << 20}), 0, 40, a, b);
  CHECK(wrong_elements(b, KvDtype::bf16, 0, 40, carrier) == 0);
}
