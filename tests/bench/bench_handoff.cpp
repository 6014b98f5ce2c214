#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "runtime/base/check.h"
#include "runtime/base/limits.h"
#include "runtime/engine/mapped_memory.h"
#include "tests/mpi/meeting.h"
#include "tests/unit/transport/mover_fixture.h"
#include "transport/inproc/inproc_mover.h"
#include "transport/mpi/mpi_mover.h"

// Times the KV hand-off against memcpy of the same bytes, with and without digests, between equal
// placements and through reshards; and the planning of reshards. Alone it measures the in-process
// mover; under `mpirun -np 2` the MPI mover. Copy and hand-off take turns, and each figure is the
// median of its ratios, so that a noisy machine disturbs both alike.

using namespace baton;
using namespace baton::test;

namespace {

// SmolLM2-135M: 30 layers, 9 heads on 3 kv-heads of 64.
constexpr KvShape kShape{30, 3, 64};
constexpr uint32_t kHeads = 9;
constexpr uint32_t kTokens = 2048;
constexpr uint32_t kSpareTokens = 512;
constexpr int kRuns = 15;

struct Side {
  uint32_t tensor = 1;
  uint32_t pipeline = 1;
  uint32_t block_tokens = 16;
  KvDtype dtype = KvDtype::bf16;
};
struct Case {
  const char* name;
  Side source;
  Side target;
};
constexpr Case kCases[] = {
    {"equal, 1 rank", {}, {}},
    {"equal, 3 ranks", {3, 1}, {3, 1}},
    {"1 rank to 3", {}, {3, 1}},
    {"3 ranks to 1", {3, 1}, {}},
    {"2 stages to 3 ranks", {1, 2}, {3, 1}},
    {"blocks 16 to 64", {}, {1, 1, 64}},
    {"blocks 64 to 16", {1, 1, 64}, {}},
    {"f32 to bf16", {1, 1, 16, KvDtype::f32}, {}},
    {"bf16 to f32", {}, {1, 1, 16, KvDtype::f32}},
    {"f16 to bf16", {1, 1, 16, KvDtype::f16}, {}},
};

Placement placement_of(const Side& side) {
  PlacementOptions options;
  options.shape = kShape;
  options.query_heads = kHeads;
  options.tensor_parallel = side.tensor;
  options.pipeline_parallel = side.pipeline;
  options.block_tokens = side.block_tokens;
  options.dtype = side.dtype;
  return *make_placement(options);
}

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

// The pools of an instance, in memory as an engine takes it, and a block table in random order.
struct Pools {
  explicit Pools(const Side& side, uint64_t seed) : placement(placement_of(side)) {
    blocks = (kTokens + kSpareTokens) / side.block_tokens;
    std::mt19937_64 random(seed);
    table = random_blocks(kTokens / side.block_tokens, blocks, random);
    for (uint32_t rank = 0; rank < placement.ranks.size(); ++rank) {
      auto memory = MappedMemory::allocate(blocks * placement.geometry(rank).block_bytes(),
                                           {"the bench's pool", "stop something else"});
      CHECK(memory.ok());
      pools.push_back(std::move(*memory));
      for (size_t at = 0; at + 8 <= pools.back().size(); at += 8) {
        // Four halves between 0x3000 and 0x3fff: ordinary numbers in every format.
        const uint64_t halves = 0x3000300030003000u + (random() & 0x0fff0fff0fff0fffu);
        std::memcpy(pools.back().data() + at, &halves, 8);
      }
    }
  }
  BlockStore store() {
    return {placement, blocks, [this](uint32_t rank, BlockId block) {
              const size_t size = placement.geometry(rank).block_bytes();
              return std::span(pools[rank].data() + block.value * size, size);
            }};
  }

  Placement placement;
  uint32_t blocks = 0;
  std::vector<BlockId> table;
  std::vector<MappedMemory> pools;
};

// memcpy of as many bytes as the transfer has, between scattered blocks of the target's size.
class PlainCopy {
 public:
  explicit PlainCopy(const Side& target) : from_(target, 71), to_(target, 72) {}
  double run() {
    const double begin = now_s();
    const BlockStore from = from_.store();
    const BlockStore to = to_.store();
    for (uint32_t rank = 0; rank < from_.placement.ranks.size(); ++rank) {
      for (size_t i = 0; i < from_.table.size(); ++i) {
        const auto source = from.bytes(rank, from_.table[i]);
        std::memcpy(to.bytes(rank, to_.table[i]).data(), source.data(), source.size());
      }
    }
    return now_s() - begin;
  }

 private:
  Pools from_;
  Pools to_;
};

void print_case(const char* path, const Case& what, bool digests, uint64_t bytes,
                const std::vector<double>& times, const std::vector<double>& ratios) {
  std::printf("%-7s %-20s %-9s %6.1f MB %7.2f ms %6.1f GB/s   %.2f of memcpy\n", path, what.name,
              digests ? "digested" : "", double(bytes) / 1e6, median(times) * 1e3,
              double(bytes) / median(times) / 1e9, median(ratios));
  std::fflush(stdout);
}

uint64_t bytes_of(const KvTransfer& transfer) {
  uint64_t bytes = 0;
  for (const KvPiece& piece : transfer.pieces) bytes += piece.bytes;
  return bytes;
}

std::shared_ptr<const RoutedPlan> plan_of(const Case& what, bool digests) {
  return plan_between(placement_of(what.source), placement_of(what.target),
                      {1, Limits{}.piece_bytes_max, digests});
}

void bench_inproc(const Case& what, bool digests) {
  Pools source_pools(what.source, 1);
  Pools target_pools(what.target, 2);
  PlainCopy plain(what.target);
  PieceEnds sent;
  PieceEnds received;
  InprocExchange exchange;
  InprocMover source(exchange, source_pools.store(), sent.sink());
  InprocMover target(exchange, target_pools.store(), received.sink());
  const auto plan = plan_of(what, digests);
  std::vector<double> times;
  std::vector<double> ratios;
  uint64_t bytes = 0;
  size_t pieces = 0;
  for (int run = 0; run < kRuns; ++run) {
    const uint64_t id = static_cast<uint64_t>(run) + 1;
    const auto tag = static_cast<uint32_t>(id * 4096);
    const KvTransfer there = make_transfer(id, {0, kPrefillSlot, 1}, plan, KvDirection::receive, 0,
                                           kTokens, target_pools.table, tag);
    const KvTransfer here = make_transfer(id, {0, kDecodeSlot, 1}, plan, KvDirection::send, 0,
                                          kTokens, source_pools.table, tag);
    CHECK(target.expect(there, {0, kDecodeSlot, 1}).ok());
    pieces += there.pieces.size();
    bytes = bytes_of(there);
    const double copied = plain.run();
    const double begin = now_s();
    CHECK(source.send(here, {0, kPrefillSlot, 1}).ok());
    CHECK(received.wait_received(pieces));
    times.push_back(now_s() - begin);
    ratios.push_back(copied / times.back());
  }
  print_case("inproc", what, digests, bytes, times, ratios);
}

void bench_planning() {
  PlacementOptions options;
  options.shape = {64, 8, 128};
  options.query_heads = 64;
  options.tensor_parallel = 64;
  const Placement tensor = *make_placement(options);
  options.tensor_parallel = 8;
  options.pipeline_parallel = 8;
  const Placement mixed = *make_placement(options);
  std::vector<double> times;
  size_t segments = 0;
  size_t routes = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = now_s();
    const RoutedPlan routed = route_plan(*plan_reshard(tensor, mixed), {1, 1 << 20, true});
    times.push_back(now_s() - begin);
    segments = routed.plan.segments.size();
    routes = routed.routes.size();
  }
  PlanCache cache;
  CHECK(cache.plan(tensor, mixed).ok());
  const double begin = now_s();
  CHECK(cache.plan(tensor, mixed).ok());
  const double cached = now_s() - begin;
  std::printf("planning 64 x 64 ranks: %zu segments, %zu routes in %.3f ms; cached in %.1f us\n",
              segments, routes, median(times) * 1e3, cached * 1e6);
}

// Rank 0 sends, rank 1 receives and measures.
class MpiBench {
 public:
  explicit MpiBench(MpiWorld& world) : world_(world), meeting_(world) {}

  void run(const Case& what, bool digests) {
    const bool sends = world_.rank() == 0;
    Pools pools(sends ? what.source : what.target, world_.rank() + 1);
    PlainCopy plain(what.target);
    PieceEnds ends;
    MpiMover mover(world_, pools.store(), ends.sink());
    const auto plan = plan_of(what, digests);
    mover.prepare(plan);
    std::vector<double> times;
    std::vector<double> ratios;
    size_t pieces = 0;
    uint64_t bytes = 0;
    for (int run = 0; run < kRuns; ++run) {
      const uint64_t id = ++last_;
      const KvTransfer transfer =
          make_transfer(id, {1 - world_.rank(), kDecodeSlot, 1}, plan,
                        sends ? KvDirection::send : KvDirection::receive, 0, kTokens, pools.table,
                        static_cast<uint32_t>(id * 4096));
      pieces += transfer.pieces.size();
      bytes = bytes_of(transfer);
      const ActorId me{world_.rank(), kDecodeSlot, 1};
      const double copied = sends ? 0 : plain.run();
      if (!sends) CHECK(mover.expect(transfer, me).ok());
      meet();
      if (sends) {
        meeting_.cell(0) = std::bit_cast<uint64_t>(now_s());
        CHECK(mover.send(transfer, me).ok());
        CHECK(ends.wait_sent(pieces));
      } else {
        CHECK(ends.wait_received(pieces));
        times.push_back(now_s() - std::bit_cast<double>(meeting_.cell(0).load()));
        ratios.push_back(copied / times.back());
      }
      meet();
    }
    if (!sends) print_case("mpi", what, digests, bytes, times, ratios);
  }

 private:
  void meet() {
    const uint64_t round = ++rounds_;
    meeting_.cell(1 + world_.rank()) = round;
    while (meeting_.cell(2 - world_.rank()) < round) std::this_thread::yield();
  }

  MpiWorld& world_;
  Meeting meeting_;
  uint64_t last_ = 0;
  uint64_t rounds_ = 0;
};

}  // namespace

int main() {
  if (!MpiWorld::launched()) {
    bench_planning();
    for (const Case& what : kCases) {
      for (const bool digests : {false, true}) bench_inproc(what, digests);
    }
    return 0;
  }
  const auto world = MpiWorld::start({});
  if (!world.ok() || (*world)->size() != 2) {
    std::fprintf(stderr, "run as: mpirun -np 2 bench_handoff\n");
    return 64;
  }
  MpiBench bench(**world);
  for (const Case& what : kCases) {
    for (const bool digests : {false, true}) bench.run(what, digests);
  }
  (*world)->leave(0, kSecond);
}
