#pragma once

#include "launch/sim/findings.h"
#include "runtime/actor/engine.h"
#include "transport/sim/sim_fabric.h"
#include "transport/sim/sim_mover.h"

namespace baton {

// No step touches a block into which bytes of a transfer may still come: neither before its own
// transfer is complete, nor before the quarantine of an earlier one has ended.
inline void check_step_against_transfers(const SimMover& mover, const Batch& batch,
                                         const SimFabric& fabric, Findings& findings) {
  const std::set<BlockId> written = fabric.written_blocks(mover);
  if (written.empty()) return;
  const auto check = [&](BlockId block) {
    if (!written.contains(block)) return;
    findings.add("transfer", "rank " + std::to_string(mover.rank()) + ": a step uses block " +
                                 std::to_string(block.value) +
                                 " while bytes of a transfer still come into it");
  };
  for (const BatchRow& row : batch.rows) {
    for (const BlockId block : row.blocks) check(block);
  }
  for (const BlockCopy& copy : batch.copies) {
    check(copy.from);
    check(copy.to);
  }
}

}  // namespace baton
