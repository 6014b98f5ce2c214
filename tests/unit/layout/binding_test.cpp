#include "runtime/layout/binding.h"

#include <doctest/doctest.h>

#include <cstring>

#include "kernels/kv_layout.h"
#include "runtime/base/hash.h"
#include "tests/unit/layout/random_placement.h"

using namespace baton;

namespace {

constexpr uint8_t kUntouched = 0xEE;

// The stores of all ranks of an instance, with one request's block tables.
struct Instance {
  Placement placement;
  BlockTables tables;
  std::vector<std::vector<uint8_t>> pools;
  std::vector<std::vector<uint8_t>> writes;  // how often each byte was written

  KvLayout layout(uint32_t rank) const {
    const KvGeometry g = placement.geometry(rank);
    return {g.layers, g.kv_heads, g.head_dim, g.block_tokens, static_cast<KvElement>(g.dtype)};
  }
  uint8_t* block(uint32_t rank, BlockId id) {
    return pools[rank].data() + size_t{id.value} * layout(rank).block_bytes();
  }
};

// Random tables in pools with spare blocks; table blocks are zero, spare ones a pattern.
Instance make_instance(const Placement& placement, uint32_t tokens, uint32_t extra,
                       test::PlacementMaker& make) {
  Instance out{placement, {}, {}, {}};
  const uint32_t blocks = (tokens + placement.block_tokens - 1) / placement.block_tokens + extra;
  std::mt19937 random(make.roll(0, 1u << 30));
  for (uint32_t rank = 0; rank < placement.ranks.size(); ++rank) {
    std::vector<BlockId> ids(blocks + 3);
    for (uint32_t i = 0; i < ids.size(); ++i) ids[i] = BlockId{i};
    std::shuffle(ids.begin(), ids.end(), random);
    const size_t size = ids.size() * placement.geometry(rank).block_bytes();
    out.pools.emplace_back(size, kUntouched);
    out.writes.emplace_back(size, uint8_t{0});
    ids.resize(blocks);
    out.tables.push_back(ids);
    for (BlockId id : ids) std::memset(out.block(rank, id), 0, out.layout(rank).block_bytes());
  }
  return out;
}

// Calls visit(rank, pointer into the pool, layer, k or v, head, token, dim) for every element that
// an instance holds for the blocks of its tables.
template <class Visit>
void each_element(Instance& instance, const Visit& visit) {
  for (uint32_t rank = 0; rank < instance.tables.size(); ++rank) {
    const KvLayout layout = instance.layout(rank);
    const Box& box = instance.placement.ranks[rank];
    for (uint32_t i = 0; i < instance.tables[rank].size(); ++i) {
      uint8_t* block = instance.block(rank, instance.tables[rank][i]);
      for (uint32_t layer = 0; layer < layout.layers; ++layer) {
        for (uint32_t head = 0; head < layout.kv_heads; ++head) {
          for (uint32_t token = 0; token < layout.block_tokens; ++token) {
            for (uint32_t dim = 0; dim < layout.head_dim; ++dim) {
              for (int value : {0, 1}) {
                const size_t part =
                    value ? layout.v_offset(layer, head) : layout.k_offset(layer, head);
                const size_t at = value ? layout.v_index(token, dim) : layout.k_index(token, dim);
                visit(rank, block + part + at * kv_element_bytes(layout.element),
                      box.layers.begin + layer, value, box.heads.begin + head,
                      i * layout.block_tokens + token, dim);
              }
            }
          }
        }
      }
    }
  }
}

uint32_t element_of(uint32_t layer, int value, uint32_t head, uint32_t token, uint32_t dim) {
  const uint64_t name =
      (((uint64_t{layer} * 2 + static_cast<uint64_t>(value)) * 64 + head) * 4096 + token) * 64 +
      dim;
  return static_cast<uint32_t>(mix64(name));
}

void fill(Instance& instance, uint32_t tokens) {
  const size_t bytes = dtype_bytes(instance.placement.dtype);
  each_element(instance, [&](uint32_t, uint8_t* at, uint32_t layer, int value, uint32_t head,
                             uint32_t token, uint32_t dim) {
    const uint32_t element = element_of(layer, value, head, token, dim);
    if (token < tokens) std::memcpy(at, &element, bytes);
  });
}

void carry(const std::vector<PeerRanges>& peers, Instance& source, Instance& target) {
  for (const PeerRanges& peer : peers) {
    uint64_t bytes = 0;
    for (const BlockRange& r : peer.ranges) {
      uint8_t* to = target.block(peer.target_rank, r.target_block) + r.target_offset;
      std::memcpy(to, source.block(peer.source_rank, r.source_block) + r.source_offset, r.bytes);
      const auto at = to - target.pools[peer.target_rank].data();
      for (uint64_t i = 0; i < r.bytes; ++i) ++target.writes[peer.target_rank][at + i];
      bytes += r.bytes;
    }
    CHECK(bytes == peer.bytes);
  }
}

// Every element of every target rank is the one that its name says; nothing else was written.
void check_arrived(Instance& target, uint32_t tokens) {
  const size_t bytes = dtype_bytes(target.placement.dtype);
  int wrong = 0;
  each_element(target, [&](uint32_t rank, uint8_t* at, uint32_t layer, int value, uint32_t head,
                           uint32_t token, uint32_t dim) {
    uint32_t expected = token < tokens ? element_of(layer, value, head, token, dim) : 0;
    if (std::memcmp(at, &expected, bytes) != 0) ++wrong;
    const auto offset = at - target.pools[rank].data();
    const uint8_t written = target.writes[rank][offset];
    if (written > 1 || (token < tokens && written != 1)) ++wrong;
  });
  CHECK(wrong == 0);
  for (uint32_t rank = 0; rank < target.tables.size(); ++rank) {
    size_t spare_writes = 0;
    std::vector<bool> in_table(target.tables[rank].size() + 3, false);
    for (BlockId id : target.tables[rank]) in_table[id.value] = true;
    const size_t block_bytes = target.layout(rank).block_bytes();
    for (size_t i = 0; i < target.writes[rank].size(); ++i) {
      if (!in_table[i / block_bytes] && target.writes[rank][i] != 0) ++spare_writes;
    }
    CHECK(spare_writes == 0);
  }
}

// No range is empty, and none goes on where the one before it ended.
void check_joined(const std::vector<PeerRanges>& peers) {
  int wrong = 0;
  for (const PeerRanges& peer : peers) {
    for (size_t i = 0; i < peer.ranges.size(); ++i) {
      const BlockRange& b = peer.ranges[i];
      if (b.bytes == 0) ++wrong;
      if (i == 0) continue;
      const BlockRange& a = peer.ranges[i - 1];
      const bool follows = a.source_block == b.source_block && a.target_block == b.target_block &&
                           a.source_offset + a.bytes == b.source_offset &&
                           a.target_offset + a.bytes == b.target_offset;
      if (follows) ++wrong;
    }
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("10,000 random reshards bring every byte to its place once, and back again") {
  test::PlacementMaker make(7);
  for (int i = 0; i < 10'000; ++i) {
    CAPTURE(i);
    const KvShape shape = make.shape();
    const KvDtype dtype = static_cast<KvDtype>(make.roll(0, 2));
    const uint32_t tokens = make.roll(0, i % 10 == 0 ? 140 : 40);
    Instance a = make_instance(make.placement(shape, dtype), tokens, make.roll(0, 1), make);
    Instance b = make_instance(make.placement(shape, dtype), tokens, make.roll(0, 1), make);
    fill(a, tokens);
    const Plan there = *plan_reshard(a.placement, b.placement);
    const Plan back = *plan_reshard(b.placement, a.placement);
    const auto ranges = bind_plan(there, tokens, a.tables, b.tables);
    REQUIRE(ranges.ok());
    check_joined(*ranges);
    carry(*ranges, a, b);
    check_arrived(b, tokens);
    Instance again = make_instance(a.placement, tokens, 1, make);
    const auto returned = bind_plan(back, tokens, b.tables, again.tables);
    REQUIRE(returned.ok());
    carry(*returned, b, again);
    check_arrived(again, tokens);
  }
}

TEST_CASE("between equal placements each range is one whole block") {
  KvGeometry g{30, 3, 64, 16, KvDtype::bf16, InnerLayout::cpu_pairs};
  const Placement p = single_rank_placement(g);
  const Plan plan = *plan_reshard(p, p);
  const BlockTables source = {{BlockId{9}, BlockId{2}, BlockId{5}}};
  const BlockTables target = {{BlockId{0}, BlockId{7}, BlockId{3}}};
  const auto peers = *bind_plan(plan, 33, source, target);
  REQUIRE(peers.size() == 1);
  REQUIRE(peers[0].ranges.size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(peers[0].ranges[i] == BlockRange{source[0][i], 0, target[0][i], 0, g.block_bytes()});
  }
  CHECK(peers[0].bytes == 3 * g.block_bytes());
}

TEST_CASE("T44: a target table that is one block longer at a block boundary is left alone there") {
  KvGeometry g{2, 1, 4, 16, KvDtype::bf16, InnerLayout::cpu_pairs};
  const Placement p = single_rank_placement(g);
  const Plan plan = *plan_reshard(p, p);
  const auto peers =
      *bind_plan(plan, 32, {{BlockId{0}, BlockId{1}}}, {{BlockId{4}, BlockId{5}, BlockId{6}}});
  REQUIRE(peers[0].ranges.size() == 2);
  CHECK(peers[0].ranges[1].target_block == BlockId{5});
}

TEST_CASE("block tables that do not fit are refused with a sentence") {
  KvGeometry g{2, 1, 4, 16, KvDtype::bf16, InnerLayout::cpu_pairs};
  const Placement p = single_rank_placement(g);
  const Plan plan = *plan_reshard(p, p);
  CHECK(bind_plan(plan, 33, {{BlockId{0}, BlockId{1}}}, {{BlockId{0}, BlockId{1}, BlockId{2}}})
            .error()
            .text == "the source's block tables: rank 0 has 2 blocks, 33 tokens need 3");
  CHECK(bind_plan(plan, 17, {{BlockId{0}, BlockId{1}}}, {{BlockId{4}, BlockId{4}}}).error().text ==
        "the target's block tables: rank 0 names block 4 twice");
  CHECK(bind_plan(plan, 1, {}, {{BlockId{4}}}).error().text ==
        "the source's block tables: 0 tables for 1 ranks");
  Placement f32 = p;
  f32.dtype = KvDtype::f32;
  CHECK(bind_plan(*plan_reshard(p, f32), 1, {{BlockId{0}}}, {{BlockId{4}}}).error().code ==
        ErrorCode::unsupported);
}
