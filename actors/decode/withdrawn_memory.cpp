#include "actors/decode/withdrawn_memory.h"

#include <utility>

namespace baton {

void WithdrawnMemory::note(TransferId transfer, std::vector<KvPiece> withdrawn) {
  pieces_[transfer] = std::move(withdrawn);
  order_.push_back(transfer);
  while (order_.size() > transfers_max_) {
    pieces_.erase(order_.front());
    order_.pop_front();
  }
}

std::optional<std::vector<KvPiece>> WithdrawnMemory::take(TransferId transfer) {
  const auto found = pieces_.find(transfer);
  if (found == pieces_.end()) return std::nullopt;
  std::optional<std::vector<KvPiece>> taken(std::move(found->second));
  pieces_.erase(found);
  return taken;
}

}  // namespace baton
