#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <thread>

#include "runtime/base/check.h"
#include "tests/mpi/meeting.h"
#include "tests/unit/transport/mover_fixture.h"
#include "transport/mpi/mpi_mover.h"

// Scenarios of the MPI mover, each run by all ranks of a job. A broken expectation aborts with
// CHECK.

using namespace baton;
using namespace baton::test;

namespace {

const KvGeometry kGeometry{4, 3, 64, 16, KvDtype::bf16, InnerLayout::cpu_pairs};  // 48 KiB blocks
constexpr uint32_t kBlocks = 512;
const Micros kLeaveWithin = 500 * kMillisecond;

ActorId actor_of(uint32_t rank) {
  return {rank, kDecodeSlot, 1};
}

void sleep_us(int64_t us) {
  std::this_thread::sleep_for(std::chrono::microseconds(us));
}

bool wait_until(const std::function<bool()>& condition, int within_ms = 20'000) {
  for (int i = 0; i < within_ms && !condition(); ++i) sleep_us(1000);
  return condition();
}

// One rank: its pool, whose bytes every other rank can compute from the seed, and its mover.
struct Rank {
  explicit Rank(MpiWorld& the_world, uint64_t piece_bytes_max = size_t{1} << 20)
      : world(the_world), meeting(world) {
    limits.piece_bytes_max = piece_bytes_max;
    pool.fill(world.rank());
    mover = std::make_unique<MpiMover>(world, pool.store(), ends.sink());
  }
  uint32_t rank() const { return world.rank(); }

  // The blocks and tags of transfer `id`, the same on both sides: `mine` chooses whose table.
  KvTransfer transfer(uint64_t id, uint32_t peer, uint32_t whose, uint32_t count) const {
    std::mt19937_64 random(id * 2 + whose + 1000);
    const auto blocks = random_blocks(count, kBlocks / 2, random);
    return make_transfer(id, actor_of(peer), blocks, kGeometry, limits.piece_bytes_max,
                         static_cast<uint32_t>(id * 64));
  }
  bool arrived(const KvTransfer& source, const KvTransfer& target, MemoryPool& source_pool) {
    for (size_t p = 0; p < source.pieces.size(); ++p) {
      for (size_t b = 0; b < source.pieces[p].blocks.size(); ++b) {
        if (!pool.same(target.pieces[p].blocks[b], source_pool, source.pieces[p].blocks[b])) {
          return false;
        }
      }
    }
    return true;
  }
  [[noreturn]] void leave(const char* scenario, uint32_t live_ranks, Micros within) {
    CHECK(ends.repeated() == 0);
    meeting.barrier(127, live_ranks);
    mover.reset();
    if (rank() == 0) std::printf("scenario %s: passed\n", scenario);
    world.leave(0, within);
  }

  MpiWorld& world;
  Meeting meeting;
  Limits limits;
  MemoryPool pool{kGeometry, kBlocks};
  PieceEnds ends;
  std::unique_ptr<MpiMover> mover;
};

KvTransfer in_upper_half(KvTransfer transfer) {
  for (BlockId& block : transfer.blocks) block.value += kBlocks / 2;
  for (KvPiece& piece : transfer.pieces) {
    for (BlockId& block : piece.blocks) block.value += kBlocks / 2;
  }
  return transfer;
}

// Rank 0 sends random block tables to rank 1, one after the other.
void equality(MpiWorld& world) {
  Rank me(world);
  MemoryPool source_pool(kGeometry, kBlocks);
  source_pool.fill(0);
  size_t pieces = 0;
  for (uint32_t id = 1; id <= 60; ++id) {
    const uint32_t count = id % 3 == 0 ? 1 + id : 5 * id % 200 + 1;
    const KvTransfer source = me.transfer(id, 1, 0, count);
    const KvTransfer target = me.transfer(id, 0, 1, count);
    pieces += source.pieces.size();
    if (me.rank() == 1) {
      CHECK(me.mover->expect(target, actor_of(1)).ok());
      me.meeting.barrier(id, 2);
      CHECK(me.ends.wait_received(pieces));
      CHECK(me.arrived(source, target, source_pool));
      for (const KvPiece& piece : target.pieces) {
        const auto received = me.ends.received().at({TransferId{id}, piece.piece});
        CHECK(received.ok);
        CHECK(received.digest == source_pool.digest(source.pieces[piece.piece].blocks));
        CHECK(received.sent_digest == received.digest);
      }
    } else {
      me.meeting.barrier(id, 2);
      CHECK(me.mover->send(source, actor_of(0)).ok());
      CHECK(me.ends.wait_sent(pieces));
      CHECK(me.ends.sent().rbegin()->second.ok);
    }
  }
  CHECK(me.mover->busy_blocks().empty());
  me.leave("equality", 2, kLeaveWithin);
}

// All ranks send to all others at once: 300 transfers each, many under way.
void many(MpiWorld& world) {
  Rank me(world, size_t{256} << 10);
  constexpr uint32_t kEach = 300;
  const uint32_t ranks = world.size();
  auto id_of = [&](uint32_t source, uint32_t i) { return 1 + uint64_t{source} * kEach + i; };
  auto target_of = [&](uint32_t source, uint32_t i) {
    return (source + 1 + i % (ranks - 1)) % ranks;
  };
  auto count_of = [](uint32_t i) { return 1 + i * 7 % 12; };
  // Receives write to the upper half of the pool, each to blocks of its own turn.
  std::vector<std::unique_ptr<MemoryPool>> pools;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    pools.push_back(std::make_unique<MemoryPool>(kGeometry, kBlocks));
    pools.back()->fill(rank);
  }
  std::map<uint64_t, KvTransfer> targets;
  size_t expected = 0;
  size_t sent = 0;
  for (uint32_t round = 0; round < kEach / 10; ++round) {
    uint32_t next_block = kBlocks / 2;
    for (uint32_t source = 0; source < ranks; ++source) {
      for (uint32_t i = round * 10; i < round * 10 + 10; ++i) {
        if (source == me.rank() || target_of(source, i) != me.rank()) continue;
        std::vector<BlockId> blocks;
        for (uint32_t b = 0; b < count_of(i); ++b) blocks.push_back(BlockId{next_block++});
        CHECK(next_block <= kBlocks);
        const uint64_t id = id_of(source, i);
        const KvTransfer target =
            make_transfer(id, actor_of(source), blocks, kGeometry, me.limits.piece_bytes_max,
                          static_cast<uint32_t>(id * 64));
        CHECK(me.mover->expect(target, actor_of(me.rank())).ok());
        expected += target.pieces.size();
        targets.emplace(id, target);
      }
    }
    me.meeting.barrier(2 * round, ranks);
    for (uint32_t i = round * 10; i < round * 10 + 10; ++i) {
      const uint64_t id = id_of(me.rank(), i);
      const KvTransfer source = me.transfer(id, target_of(me.rank(), i), me.rank(), count_of(i));
      CHECK(me.mover->send(source, actor_of(me.rank())).ok());
      sent += source.pieces.size();
    }
    CHECK(me.ends.wait_received(expected));
    CHECK(me.ends.wait_sent(sent));
    for (const auto& [id, target] : targets) {
      const auto source_rank = static_cast<uint32_t>((id - 1) / kEach);
      const auto i = static_cast<uint32_t>((id - 1) % kEach);
      const KvTransfer source = me.transfer(id, me.rank(), source_rank, count_of(i));
      CHECK(me.arrived(source, target, *pools[source_rank]));
    }
    targets.clear();
    me.meeting.barrier(2 * round + 1, ranks);
  }
  CHECK(me.mover->busy_blocks().empty());
  me.leave("many", ranks, kLeaveWithin);
}

// Rank 1 cancels receives before, during and after the message comes.
void cancel(MpiWorld& world) {
  Rank me(world);
  MemoryPool source_pool(kGeometry, kBlocks);
  source_pool.fill(0);
  constexpr uint32_t kRounds = 100;
  constexpr uint32_t kCount = 64;  // 3 MiB
  size_t pieces = 0;
  uint32_t withdrawn = 0;
  std::mt19937_64 random(9);
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint64_t id = round + 1;
    const KvTransfer source = me.transfer(id, 1, 0, kCount);
    const KvTransfer target = me.transfer(id, 0, 1, kCount);
    pieces += source.pieces.size();
    if (me.rank() == 0) {
      me.meeting.barrier(round, 2);
      CHECK(me.mover->send(source, actor_of(0)).ok());
      continue;
    }
    std::map<uint32_t, uint64_t> before;
    for (const KvPiece& piece : target.pieces) {
      for (BlockId block : piece.blocks) before[block.value] = me.pool.hash(block);
    }
    CHECK(me.mover->expect(target, actor_of(1)).ok());
    if (round % 4 == 0) me.mover->cancel(TransferId{id});  // surely before
    me.meeting.barrier(round, 2);
    if (round % 4 != 0) sleep_us(static_cast<int64_t>(random() % 1500));
    me.mover->cancel(TransferId{id});
    me.mover->drain(target);
    CHECK(me.ends.wait_received(pieces));
    const auto received = me.ends.received();
    for (const KvPiece& piece : target.pieces) {
      const KvReceived& end = received.at({TransferId{id}, piece.piece});
      if (round % 4 == 0) CHECK(!end.ok);
      if (end.ok) {
        CHECK(end.digest == source_pool.digest(source.pieces[piece.piece].blocks));
        continue;
      }
      ++withdrawn;
      for (BlockId block : piece.blocks) CHECK(me.pool.hash(block) == before[block.value]);
    }
  }
  if (me.rank() == 0) {
    CHECK(me.ends.wait_sent(pieces));  // what was not wanted was drained
    for (const auto& [key, end] : me.ends.sent()) CHECK(end.ok);
  } else {
    CHECK(wait_until([&] { return me.mover->counters().strays == withdrawn; }));
    CHECK(withdrawn >= kRounds / 4);
    CHECK(wait_until([&] { return me.mover->counters().receives_stuck == 0; }));
  }
  CHECK(me.mover->busy_blocks().empty());
  me.leave("cancel", 2, kLeaveWithin);
}

// Ranks 0 and 1 move blocks after rank 2 has died.
void survivors_move_blocks(Rank& me) {
  const size_t sent_before = me.ends.sent().size();
  const size_t received_before = me.ends.received().size();
  const KvTransfer source = me.transfer(10, 1, 0, 100);
  const KvTransfer target = in_upper_half(me.transfer(10, 0, 1, 100));
  if (me.rank() == 1) CHECK(me.mover->expect(target, actor_of(1)).ok());
  me.meeting.barrier(1, 2);
  if (me.rank() == 0) {
    CHECK(me.mover->send(source, actor_of(0)).ok());
    CHECK(me.ends.wait_sent(sent_before + source.pieces.size()));
  } else {
    CHECK(me.ends.wait_received(received_before + source.pieces.size()));
    MemoryPool source_pool(kGeometry, kBlocks);
    source_pool.fill(0);
    CHECK(me.arrived(source, target, source_pool));
  }
}

// Rank 0 and rank 1 hold KV in different ways and exchange it in both directions: every element is
// compared with the one that its place in the model names.
void reshard(MpiWorld& world) {
  Meeting meeting(world);
  constexpr uint32_t kRounds = 40;
  uint32_t point = 0;
  for (uint32_t round = 0; round < kRounds; ++round) {
    PlacementMaker make(1000 + round);  // the same draws on both ranks
    const KvShape shape{make.roll(1, 5), make.roll(1, 6), 16 * make.roll(1, 4)};
    const uint32_t tokens = make.roll(1, 300);
    const auto source_dtype = static_cast<KvDtype>(make.roll(0, 2));
    KvInstance source = KvInstance::make(make.placement(shape, source_dtype), tokens, make);
    KvInstance target = KvInstance::make(
        make.placement(shape, static_cast<KvDtype>(make.roll(0, 2))), tokens, make);
    const auto plan = plan_between(source.placement, target.placement,
                                   {make.roll(1, 3), uint64_t{1} << make.roll(12, 18), true});
    const uint32_t size = target.placement.block_tokens;
    const uint32_t from = make.roll(0, 1) ? 0 : make.roll(0, tokens / size) * size;
    const bool sends = world.rank() == round % 2;
    source.fill(tokens);
    PieceEnds ends;
    MpiMover mover(world, store_of_instance(sends ? source : target), ends.sink());
    mover.prepare(plan);
    const ActorId peer = actor_of(1 - world.rank());
    const auto transfer =
        make_transfer(round + 1, peer, plan, sends ? KvDirection::send : KvDirection::receive, from,
                      tokens, sends ? source.table : target.table, round * 4096);
    if (!sends) CHECK(mover.expect(transfer, actor_of(world.rank())).ok());
    meeting.barrier(point++, 2);
    if (sends) {
      CHECK(mover.send(transfer, actor_of(world.rank())).ok());
      CHECK(ends.wait_sent(transfer.pieces.size()));
    } else {
      CHECK(ends.wait_received(transfer.pieces.size()));
      for (const auto& [key, end] : ends.received()) {
        CHECK(end.ok);
        CHECK(end.digest == end.sent_digest);
      }
      CHECK(wrong_elements(target, source_dtype, from, tokens) == 0);
    }
    CHECK(mover.busy_blocks().empty());
    CHECK(ends.repeated() == 0);
    meeting.barrier(point++, 2);
  }
  meeting.barrier(127, 2);
  if (world.rank() == 0) std::printf("scenario reshard: passed\n");
  world.leave(0, kLeaveWithin);
}

// Four ranks send to rank 0 at once, more than it has buffers for; of each, one transfer is not
// wanted any more, and one comes in other pieces than are expected.
void crowd(MpiWorld& world) {
  Rank me(world);
  const uint32_t ranks = world.size();
  constexpr uint32_t kRounds = 6;
  constexpr uint32_t kCount = 16;  // blocks; each transfer has two pieces
  auto id_of = [&](uint32_t rank, uint32_t kind) { return uint64_t{1} + rank * 4 + kind; };
  for (uint32_t round = 0; round < kRounds; ++round) {
    const uint64_t first = round * 64;
    const size_t received_before = me.ends.received().size();
    const size_t strays_before = me.mover->counters().strays;
    auto transfer = [&](uint32_t source, uint32_t kind, uint32_t count) {
      std::vector<BlockId> blocks;
      for (uint32_t b = 0; b < count; ++b) blocks.push_back({(source * 4 + kind) * kCount + b});
      const uint64_t id = first + id_of(source, kind);
      return make_transfer(id, actor_of(me.rank() == 0 ? source : 0), blocks, kGeometry,
                           size_t{512} << 10, static_cast<uint32_t>(id * 64));
    };
    if (me.rank() != 0) {
      me.meeting.barrier(2 * round, ranks);
      const size_t sent_before = me.ends.sent().size();
      size_t pieces = 0;
      for (uint32_t kind = 0; kind < 4; ++kind) {
        const KvTransfer source = transfer(me.rank(), kind, kCount);
        CHECK(me.mover->send(source, actor_of(me.rank())).ok());
        pieces += source.pieces.size();
      }
      CHECK(me.ends.wait_sent(sent_before + pieces));
      me.meeting.barrier(2 * round + 1, ranks);
      continue;
    }
    me.pool.clear();
    size_t pieces = 0;
    size_t strays = 0;
    for (uint32_t source = 1; source < ranks; ++source) {
      for (uint32_t kind = 0; kind < 4; ++kind) {
        const KvTransfer target = transfer(source, kind, kind == 3 ? kCount - 1 : kCount);
        CHECK(me.mover->expect(target, actor_of(0)).ok());
        pieces += target.pieces.size();
        if (kind == 2) me.mover->cancel(target.transfer);
        if (kind == 2) strays += target.pieces.size();
        if (kind == 3) ++strays;  // its last piece is shorter here
      }
    }
    me.meeting.barrier(2 * round, ranks);
    CHECK(me.ends.wait_received(received_before + pieces));
    CHECK(wait_until([&] { return me.mover->counters().strays == strays_before + strays; }));
    for (uint32_t source = 1; source < ranks; ++source) {
      MemoryPool theirs(kGeometry, kBlocks);
      theirs.fill(source);
      for (uint32_t kind = 0; kind < 4; ++kind) {
        const KvTransfer target = transfer(source, kind, kind == 3 ? kCount - 1 : kCount);
        for (const KvPiece& piece : target.pieces) {
          const KvReceived end = me.ends.received().at({target.transfer, piece.piece});
          CHECK(end.ok == (kind < 2 || (kind == 3 && piece.piece + 1 < target.pieces.size())));
          CHECK(end.digest == (end.ok ? theirs.digest(piece.blocks) : 0));
          for (BlockId block : piece.blocks) {
            const auto bytes = me.pool.bytes_of(block);
            const bool untouched = std::all_of(bytes.begin(), bytes.end(),
                                               [](std::byte b) { return b == std::byte{0}; });
            CHECK(end.ok ? me.pool.same(block, theirs, block) : untouched);
          }
        }
      }
    }
    me.meeting.barrier(2 * round + 1, ranks);
  }
  CHECK(me.mover->busy_blocks().empty());
  me.leave("crowd", ranks, kLeaveWithin);
}

// Rank 2 dies while it sends to rank 1 and rank 0 sends to it; 0 and 1 go on.
void killed(MpiWorld& world) {
  Rank me(world);
  const uint32_t count = 200;  // 9 MiB
  const KvTransfer to_dead = me.transfer(1, 2, 0, count);
  const KvTransfer from_dead_there = me.transfer(2, 1, 2, count);
  const KvTransfer from_dead_here = me.transfer(2, 2, 1, count);
  const KvTransfer never_sent = me.transfer(5, 2, 1, 4);
  auto& death = me.meeting.cell(0);
  const size_t pieces = to_dead.pieces.size();
  if (me.rank() == 1) {
    CHECK(me.mover->expect(from_dead_here, actor_of(1)).ok());
    CHECK(me.mover->expect(in_upper_half(never_sent), actor_of(1)).ok());
  }
  me.meeting.barrier(0, 3);
  if (me.rank() == 2) {
    CHECK(me.mover->send(from_dead_there, actor_of(2)).ok());
    sleep_us(static_cast<int64_t>(getpid() % 5) * 300);
    death = 1;
    kill(getpid(), SIGKILL);
  }
  CHECK(wait_until([&] { return death == 1; }));
  sleep_us(20'000);
  if (me.rank() == 0) {
    CHECK(me.mover->send(to_dead, actor_of(0)).ok());
    sleep_us(20'000);
    me.mover->peer_down(2, kAnyIncarnation);
    CHECK(me.ends.wait_sent(pieces));
    for (const auto& [key, end] : me.ends.sent()) CHECK(!end.ok);
    CHECK(me.mover->counters().sends_abandoned == pieces);
    CHECK(me.mover->busy_blocks().empty());
  } else {
    me.mover->peer_down(2, 1);
    // What was never sent is withdrawn; what had begun is held until MPI cannot write to it.
    CHECK(me.ends.wait_received(from_dead_here.pieces.size() + never_sent.pieces.size()));
    CHECK(!me.ends.received().at({TransferId{5}, 0}).ok);
    std::printf("%llu receives had begun when their sender died\n",
                static_cast<unsigned long long>(me.mover->counters().receives_abandoned));
    CHECK(wait_until([&] { return me.mover->counters().receives_stuck == 0; }));
    CHECK(me.mover->busy_blocks().empty());
    std::vector<uint64_t> hashes;
    for (const KvPiece& piece : from_dead_here.pieces) {
      for (BlockId block : piece.blocks) hashes.push_back(me.pool.hash(block));
    }
    sleep_us(300'000);  // nothing is written after the end
    size_t at = 0;
    for (const KvPiece& piece : from_dead_here.pieces) {
      for (BlockId block : piece.blocks) CHECK(me.pool.hash(block) == hashes[at++]);
    }
  }
  survivors_move_blocks(me);
  me.leave("killed", 2, kLeaveWithin);
}

// Rank 1 is stopped while it sends, declared dead, and wakes up later: what it still sends reaches
// no block that has a new owner.
void stopped(MpiWorld& world) {
  Rank me(world);
  const uint32_t count = 240;
  auto& phase = me.meeting.cell(0);
  auto& pid = me.meeting.cell(1);
  if (me.rank() == 1) pid = static_cast<uint64_t>(getpid());
  const KvTransfer source = me.transfer(1, 0, 1, count);
  const KvTransfer target = me.transfer(1, 1, 0, count);
  if (me.rank() == 1) {
    me.meeting.barrier(0, 2);
    CHECK(wait_until([&] { return phase == 1; }));
    CHECK(me.mover->send(source, actor_of(1)).ok());
    CHECK(me.ends.wait_sent(source.pieces.size()));  // also those that nobody wanted
    me.leave("stopped", 2, kLeaveWithin);
  }
  CHECK(me.mover->expect(target, actor_of(0)).ok());
  me.meeting.barrier(0, 2);
  phase = 1;
  sleep_us(600);
  CHECK(kill(static_cast<pid_t>(pid.load()), SIGSTOP) == 0);
  me.mover->peer_down(1, 1);
  CHECK(wait_until([&] {
    return me.ends.received().size() + me.mover->counters().receives_stuck == target.pieces.size();
  }));
  // Blocks of pieces that have ended get a new owner now.
  const auto ended = me.ends.received();
  for (const auto& [key, end] : ended) {
    for (BlockId block : target.pieces[key.second].blocks) {
      std::memset(me.pool.bytes_of(block).data(), 0x5A, kGeometry.block_bytes());
    }
  }
  std::printf("stopped with %zu of %zu pieces ended\n", ended.size(), target.pieces.size());
  CHECK(kill(static_cast<pid_t>(pid.load()), SIGCONT) == 0);
  CHECK(me.ends.wait_received(target.pieces.size()));  // those that had begun end after all
  size_t withdrawn = 0;
  for (const auto& [key, end] : ended) withdrawn += end.ok ? 0 : 1;
  CHECK(wait_until([&] { return me.mover->counters().strays == withdrawn; }));
  const std::vector<std::byte> fresh(kGeometry.block_bytes(), std::byte{0x5A});
  for (const auto& [key, end] : ended) {
    for (BlockId block : target.pieces[key.second].blocks) {
      CHECK(std::memcmp(me.pool.bytes_of(block).data(), fresh.data(), fresh.size()) == 0);
    }
  }
  CHECK(me.mover->busy_blocks().empty());
  me.leave("stopped", 2, kLeaveWithin);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, void (*)(MpiWorld&)> scenarios = {
      {"equality", equality}, {"many", many},     {"cancel", cancel},  {"crowd", crowd},
      {"reshard", reshard},   {"killed", killed}, {"stopped", stopped}};
  const auto scenario = scenarios.find(argc == 2 ? argv[1] : "");
  if (scenario == scenarios.end()) {
    std::fprintf(
        stderr,
        "usage: mpirun -np N mpi_mover_check equality|many|cancel|crowd|reshard|killed|stopped\n");
    return 64;
  }
  const auto world = MpiWorld::start({});
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.error().text.c_str());
    return 1;
  }
  scenario->second(**world);
}
