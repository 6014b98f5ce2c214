#include "launch/sim/checkers/lease_checker.h"

#include "runtime/actor/wire.h"

namespace baton {

void LeaseChecker::posted(const Mail& mail) {
  const Envelope& e = mail.envelope;
  if (e.kind == Reserved::kind) {
    const auto message = decode_body<Reserved>(mail.body, Limits{});
    if (message.ok()) reserved(e.from, *message);
  } else if (e.kind == Adopted::kind) {
    const auto message = decode_body<Adopted>(mail.body, Limits{});
    if (message.ok()) adopted(e.from, message->transfer);
  } else if (e.kind == SlotFreed::kind) {
    const auto message = decode_body<SlotFreed>(mail.body, Limits{});
    if (message.ok()) freed(e.from, message->slot);
  }
}

LeaseChecker::Decode& LeaseChecker::life_of(const ActorId& actor) {
  Decode& life = decodes_[actor.rank];
  if (life.incarnation != actor.incarnation) life = Decode{actor.incarnation, {}, {}};
  return life;
}

void LeaseChecker::reserved(const ActorId& actor, const Reserved& message) {
  Decode& life = life_of(actor);
  const std::string name = "rank " + std::to_string(actor.rank) + ", transfer " +
                           std::to_string(message.transfer.value) + ": ";
  for (const SlotLease& slot : message.slots) {
    const auto [place, fresh] =
        life.slots.try_emplace(slot.slot, slot.generation, message.transfer);
    if (!fresh && place->second.second != message.transfer) {
      findings_.add("lease", name + "slot " + std::to_string(slot.slot.value) +
                                 " is leased to transfer " +
                                 std::to_string(place->second.second.value) + " still");
    }
  }
  for (const BlockId block : message.blocks) {
    const auto [place, fresh] = life.blocks.try_emplace(block, message.transfer);
    if (!fresh && place->second != message.transfer) {
      findings_.add("lease", name + "block " + std::to_string(block.value) +
                                 " is leased to transfer " + std::to_string(place->second.value) +
                                 " still");
    }
  }
}

// From here on its blocks may be exchanged for others with the same bytes; step() watches them.
void LeaseChecker::adopted(const ActorId& actor, TransferId transfer) {
  std::erase_if(life_of(actor).blocks, [&](const auto& entry) { return entry.second == transfer; });
}

void LeaseChecker::freed(const ActorId& actor, const SlotLease& slot) {
  Decode& life = life_of(actor);
  const auto place = life.slots.find(slot.slot);
  if (place == life.slots.end() || place->second.first != slot.generation) {
    findings_.add("lease", "rank " + std::to_string(actor.rank) + " frees slot " +
                               std::to_string(slot.slot.value) + " twice");
    return;
  }
  std::erase_if(life.blocks,
                [&](const auto& entry) { return entry.second == place->second.second; });
  life.slots.erase(place);
}

// Many rows may read a block; one that a row writes, or a copy makes, belongs to that row alone.
void LeaseChecker::step(uint32_t rank, const Batch& batch, uint32_t block_tokens) {
  std::map<BlockId, int> touched;
  std::set<BlockId> written;
  for (const BatchRow& row : batch.rows) {
    const uint64_t end = row.position + row.tokens.size();
    for (uint64_t i = 0; i * block_tokens < end; ++i) {
      ++touched[row.blocks[i]];
      if ((i + 1) * block_tokens > row.position) written.insert(row.blocks[i]);
    }
  }
  for (const BlockCopy& copy : batch.copies) written.insert(copy.to);
  for (const BlockId block : written) {
    if (touched[block] <= 1) continue;
    findings_.add("lease", "rank " + std::to_string(rank) + ": block " +
                               std::to_string(block.value) +
                               " is written by one row of a step and used by another");
  }
}

}  // namespace baton
