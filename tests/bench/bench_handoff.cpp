#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/layout/plan.h"
#include "tests/mpi/meeting.h"
#include "tests/unit/transport/mover_fixture.h"
#include "transport/inproc/inproc_mover.h"
#include "transport/mpi/mpi_mover.h"

// Times the KV hand-off against memcpy of the same blocks, and the planning of reshards. Alone it
// measures the in-process mover; under `mpirun -np 2` the MPI mover. Figures are the best of
// several runs, digests at arrival included.

using namespace baton;
using namespace baton::test;

namespace {

// SmolLM2-135M: 30 layers, 3 kv-heads of 64, blocks of 16 tokens.
const KvGeometry kGeometry{30, 3, 64, 16, KvDtype::bf16, InnerLayout::cpu_pairs};
constexpr uint32_t kBlocks = 384;
constexpr uint32_t kTokens[] = {128, 512, 2048};
constexpr int kRuns = 12;

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

KvTransfer transfer_of(uint64_t id, ActorId peer, uint32_t blocks, uint64_t seed) {
  std::mt19937_64 random(seed);
  return make_transfer(id, peer, random_blocks(blocks, kBlocks, random), kGeometry,
                       Limits{}.piece_bytes_max, static_cast<uint32_t>(id * 64));
}

double memcpy_s(MemoryPool& from, MemoryPool& to, uint32_t blocks) {
  const KvTransfer a = transfer_of(1, {}, blocks, 1);
  const KvTransfer b = transfer_of(1, {}, blocks, 2);
  double best = 1e9;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = now_s();
    for (size_t p = 0; p < a.pieces.size(); ++p) {
      for (size_t i = 0; i < a.pieces[p].blocks.size(); ++i) {
        std::memcpy(to.bytes_of(b.pieces[p].blocks[i]).data(),
                    from.bytes_of(a.pieces[p].blocks[i]).data(), kGeometry.block_bytes());
      }
    }
    best = std::min(best, now_s() - begin);
  }
  return best;
}

void print_row(const char* path, uint32_t tokens, double seconds, double copy_seconds) {
  const double bytes = double(kGeometry.blocks_for(tokens)) * double(kGeometry.block_bytes());
  std::printf("%-8s %5u tokens %6.1f MB   %7.3f ms %6.1f GB/s   memcpy %6.1f GB/s   %.2f\n", path,
              tokens, bytes / 1e6, seconds * 1e3, bytes / seconds / 1e9, bytes / copy_seconds / 1e9,
              copy_seconds / seconds);
}

void bench_inproc() {
  MemoryPool source_pool(kGeometry, kBlocks);
  MemoryPool target_pool(kGeometry, kBlocks);
  source_pool.fill(1);
  target_pool.fill(2);
  PieceEnds sent;
  PieceEnds received;
  InprocExchange exchange;
  InprocMover source(exchange, source_pool.store(), sent.sink());
  InprocMover target(exchange, target_pool.store(), received.sink());
  uint64_t id = 0;
  size_t pieces = 0;
  for (uint32_t tokens : kTokens) {
    const uint32_t blocks = kGeometry.blocks_for(tokens);
    double best = 1e9;
    for (int run = 0; run < kRuns; ++run) {
      ++id;
      const KvTransfer there = transfer_of(id, {0, kPrefillSlot, 1}, blocks, id);
      CHECK(target.expect(there, {0, kDecodeSlot, 1}).ok());
      pieces += there.pieces.size();
      const KvTransfer here = transfer_of(id, {0, kDecodeSlot, 1}, blocks, id + 1000);
      const double begin = now_s();
      CHECK(source.send(here, {0, kPrefillSlot, 1}).ok());
      CHECK(received.wait_received(pieces));
      best = std::min(best, now_s() - begin);
    }
    print_row("inproc", tokens, best, memcpy_s(source_pool, target_pool, blocks));
  }
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
  double best = 1e9;
  size_t segments = 0;
  for (int run = 0; run < kRuns; ++run) {
    const double begin = now_s();
    segments = plan_reshard(tensor, mixed)->segments.size();
    best = std::min(best, now_s() - begin);
  }
  std::printf("planning 64 x 64 ranks: %zu segments in %.3f ms\n", segments, best * 1e3);
}

void bench_mpi(MpiWorld& world) {
  Meeting meeting(world);
  MemoryPool pool(kGeometry, kBlocks);
  MemoryPool other(kGeometry, kBlocks);
  pool.fill(world.rank());
  other.fill(9);
  PieceEnds ends;
  auto mover = std::make_unique<MpiMover>(world, pool.store(), ends.sink());
  const ActorId me{world.rank(), kDecodeSlot, 1};
  const ActorId peer{1 - world.rank(), kDecodeSlot, 1};
  uint64_t id = 0;
  size_t pieces = 0;
  uint32_t point = 0;
  auto& begun = meeting.cell(0);
  for (uint32_t tokens : kTokens) {
    const uint32_t blocks = kGeometry.blocks_for(tokens);
    double best = 1e9;
    for (int run = 0; run < kRuns; ++run) {
      ++id;
      const KvTransfer transfer = transfer_of(id, peer, blocks, id + 1000 * world.rank());
      pieces += transfer.pieces.size();
      if (world.rank() == 1) CHECK(mover->expect(transfer, me).ok());
      meeting.barrier(point++, 2);
      if (world.rank() == 0) {
        begun = std::bit_cast<uint64_t>(now_s());
        CHECK(mover->send(transfer, me).ok());
        CHECK(ends.wait_sent(pieces));
      } else {
        CHECK(ends.wait_received(pieces));
        best = std::min(best, now_s() - std::bit_cast<double>(begun.load()));
      }
      meeting.barrier(point++, 2);
    }
    if (world.rank() == 1) print_row("mpi", tokens, best, memcpy_s(pool, other, blocks));
    meeting.barrier(point++, 2);
  }
  mover.reset();
  world.leave(0, kSecond);
}

}  // namespace

int main() {
  if (!MpiWorld::launched()) {
    bench_planning();
    bench_inproc();
    return 0;
  }
  const auto world = MpiWorld::start({});
  if (!world.ok() || (*world)->size() != 2) {
    std::fprintf(stderr, "run as: mpirun -np 2 bench_handoff\n");
    return 64;
  }
  bench_mpi(**world);
}
