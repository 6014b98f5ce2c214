#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "runtime/base/time.h"

namespace baton {

// How a piece ended.
struct PieceEnd {
  bool ok = false;
  std::string reason;        // why not ok
  uint64_t digest = 0;       // of the bytes that arrived; receives only
  uint64_t sent_digest = 0;  // that came with them
};

// The handles of a mover: which pieces are open, whose they are and which blocks they hold. A piece
// is open from open() to its first end(), which is the only one that yields mail: so each piece has
// exactly one terminal event, and its blocks are busy until then. Shared by the owner's thread and
// the one that moves the bytes; every function is thread-safe.
class TransferTable {
 public:
  // At most `pieces_max` pieces are open in each direction.
  explicit TransferTable(size_t pieces_max) : pieces_max_(pieces_max) {}

  // Opens all pieces of a transfer or none. Fails with busy when full, and with conflict when the
  // transfer is open in this direction already.
  Result<void> open(KvDirection direction, const KvTransfer& transfer, ActorId owner, Micros now);
  // The mail that tells the owner, if this is the piece's first end.
  std::optional<Mail> end(KvDirection direction, TransferId transfer, uint32_t piece,
                          const PieceEnd& end, Micros now);

  bool is_open(KvDirection direction, TransferId transfer, uint32_t piece) const;
  size_t open_pieces(KvDirection direction) const;
  std::vector<BlockId> busy_blocks() const;  // sorted, each once

 private:
  struct Handle {
    ActorId owner;
    RequestId request;
    Epoch epoch;
    Micros opened_at = 0;
    std::map<uint32_t, std::vector<BlockId>> open;  // piece -> blocks
  };
  using Key = std::pair<KvDirection, TransferId>;

  size_t& count(KvDirection direction) {
    return direction == KvDirection::send ? sends_ : receives_;
  }

  const size_t pieces_max_;
  mutable std::mutex mutex_;
  std::map<Key, Handle> handles_;
  size_t sends_ = 0;
  size_t receives_ = 0;
};

}  // namespace baton
