#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "runtime/actor/kv_mover.h"
#include "runtime/sim/world.h"
#include "transport/kv/piece_memory.h"

namespace baton {

class SimMover;

// How bad the data plane is. Probabilities per piece.
struct FabricFaults {
  Micros piece_us_min = 30;
  Micros piece_us_max = 600;
  double slow = 0;  // chance that a piece takes up to slow_us_max
  Micros slow_us_max = 0;
  double fail = 0;         // ends in mid-transfer on both sides, with part of the bytes written
  double corrupt = 0;      // one bit arrives flipped
  double unwithdrawn = 0;  // a send cannot be withdrawn: it waits until it is drained
};

// Deliberately broken variants, to prove that the checkers bite.
enum class FabricSabotage : uint8_t {
  none,
  end_receives_early,    // tells the receiver that a piece is there before its bytes are
  skip_quarantine,       // cancelled receives end at once, while their bytes still come
  corrupt_after_digest,  // flips a bit after the receiver's digest was taken
  // Packed or read wrongly, so that digests are right and only the values are in the wrong place.
  swap_heads,      // two (layer, k or v, head) parts of a block change places
  shift_layers,    // each part is taken from the one behind it
  reverse_blocks,  // the blocks of a piece come in reverse order
  lose_suffix,     // the last block of a transfer is not filled
  wrong_element,   // elements are copied where they should be converted, or the other way round
};

// The data plane of a simulated cluster: matches the sends and receives of all movers by tag, and
// moves bytes between their pools on the virtual clock, chunk by chunk, so that a crash or a stall
// leaves a piece half written. Outlives the movers.
class SimFabric {
 public:
  explicit SimFabric(World& world) : world_(world) {}

  void set_faults(const FabricFaults& faults) { faults_ = faults; }
  void set_sabotage(FabricSabotage sabotage) { sabotage_ = sabotage; }
  // Blocks into which bytes may still come, whatever the mover told its actor.
  std::set<BlockId> written_blocks(const SimMover& mover) const;

 private:
  friend class SimMover;

  struct Half {
    SimMover* mover = nullptr;  // null: its process is gone
    uint32_t rank = 0;
    TransferId transfer;
    ActorId peer;
    std::shared_ptr<const KvTransfer> whole;  // shared by its pieces
    KvPiece piece;
    bool withdrawable = true;
  };
  struct Flow {
    Half source;
    Half target;
    bool wanted = true;             // false: the target takes the bytes in and throws them away
    Stretches from;                 // what is read: blocks of the source, or `packed`
    Stretches to;                   // if wanted
    std::vector<std::byte> packed;  // of a piece that is not read straight from blocks
    uint64_t sent_digest = 0;
    uint32_t chunks = 1;
    uint32_t chunk = 0;  // next one to move
    uint32_t fail_at = 0xFFFFFFFFu;
    uint32_t corrupt_at = 0xFFFFFFFFu;
    Micros chunk_us = 0;
  };
  // A piece's place: tags are unique in the cluster, so the rest only finds mistakes.
  struct Key {
    uint32_t source = 0;
    uint32_t target = 0;
    uint32_t tag = 0;
    friend constexpr auto operator<=>(const Key&, const Key&) = default;
  };
  static constexpr uint32_t kChunksPerBlock = 2;

  void post_send(const Key& key, Half half);
  void post_receive(const Key& key, Half half);
  void drain(const Key& key, uint32_t rank);
  void withdraw(SimMover* mover, TransferId transfer);
  void peer_down(SimMover* mover, uint32_t rank, uint32_t incarnation);
  void leave(SimMover* mover);

  void start(Half source, Half target, bool wanted);
  void lay_out(Flow& flow);
  void spoil(Flow& flow);
  void advance(uint64_t id);
  void copy_chunk(Flow& flow);
  void complete(Flow& flow);
  void end_both(Flow& flow, const std::string& reason);
  void end_receive_later(uint64_t id, Micros delay, const std::string& reason);
  template <class Which>
  void withdraw_waiting(std::map<Key, Half>& waiting, bool sends, const std::string& reason,
                        Which which);

  World& world_;
  FabricFaults faults_;
  FabricSabotage sabotage_ = FabricSabotage::none;
  std::map<Key, Half> sends_;
  std::map<Key, Half> receives_;
  std::set<Key> drains_;
  std::map<uint64_t, Flow> flows_;
  uint64_t next_flow_ = 1;
};

}  // namespace baton
