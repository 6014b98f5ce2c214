#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "runtime/actor/kv_mover.h"

namespace baton {

// Pieces of transfers that ended here before their sender announced them: their receives were taken
// back, so what still comes has to be drained, and only that. Bounded: the oldest is forgotten.
// Owned by the decode actor.
class WithdrawnMemory {
 public:
  explicit WithdrawnMemory(size_t transfers_max) : transfers_max_(transfers_max) {}

  void note(TransferId transfer, std::vector<KvPiece> withdrawn);
  // Forgets and returns them; nothing if the transfer is not known here.
  std::optional<std::vector<KvPiece>> take(TransferId transfer);
  size_t size() const { return pieces_.size(); }

 private:
  const size_t transfers_max_;
  std::map<TransferId, std::vector<KvPiece>> pieces_;
  std::deque<TransferId> order_;  // may name transfers that were taken
};

}  // namespace baton
