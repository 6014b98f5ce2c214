// Which blocks a sequence has, which of them are its own, and who makes room when there are none.

#include <algorithm>
#include <span>
#include <utility>

#include "actors/decode/decode.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

// Who has been here for longer; the first choice of a request before the others.
bool older(const Sequence& a, const Sequence& b) {
  return a.age != b.age ? a.age < b.age : a.choice < b.choice;
}

}  // namespace

// Blocks for all of the sequence's tokens, and those that it is about to write its own. False: the
// sequence has to wait, or it is gone.
bool Decode::grow(Context& context, uint32_t slot) {
  const uint32_t block_tokens = engine_.geometry().block_tokens;
  const uint32_t needed = engine_.geometry().blocks_for(sequences_[slot]->size());
  while (sequences_[slot]->blocks.size() < needed) {
    std::optional<BlockLease> block = take_block(context, slot);
    if (!block) return false;
    sequences_[slot]->block_table.push_back(block->id());
    sequences_[slot]->blocks.push_back(std::move(*block));
  }
  const uint32_t start = row_start(*sequences_[slot]);
  for (uint32_t i = start / block_tokens; i < needed; ++i) {
    std::optional<BlockLease> own;
    while (!own && shared(sequences_[slot]->block_table[i])) {  // until the others make room for it
      own = free_block(*sequences_[slot]);
      if (!own && !make_room(context, slot)) return false;
    }
    if (!own) continue;
    Sequence& sequence = *sequences_[slot];
    BlockLease theirs = std::exchange(sequence.blocks[i], std::move(*own));
    sequence.block_table[i] = sequence.blocks[i].id();
    if (i * block_tokens >= start) continue;  // nothing of it is needed
    copies_.push_back({std::move(theirs), sequence.block_table[i]});
    ++counters_.copied_blocks;
  }
  return true;
}

// Others read the block too; the prefix cache does not, nor is a block that it has ever written.
// Those that only wait to copy it will have done so before it is written.
bool Decode::shared(BlockId block) const {
  const auto waiting = std::count_if(copies_.begin(), copies_.end(),
                                     [&](const Copy& copy) { return copy.from.id() == block; });
  return pool_.users(block) > static_cast<uint32_t>(waiting) + 1;
}

std::optional<BlockLease> Decode::take_block(Context& context, uint32_t slot) {
  for (;;) {
    if (std::optional<BlockLease> block = free_block(*sequences_[slot])) return block;
    if (!make_room(context, slot)) return std::nullopt;
  }
}

// One that nobody has to give up.
std::optional<BlockLease> Decode::free_block(Sequence& sequence) {
  if (!sequence.spare.empty()) {
    BlockLease block = std::move(sequence.spare.back());
    sequence.spare.pop_back();
    return block;
  }
  std::vector<BlockLease> block = cache_.take(1);
  if (block.empty()) return std::nullopt;
  return std::move(block[0]);
}

// The youngest request loses its blocks and is computed again later; the oldest never does, so
// somebody always gets to the end. False: there was nobody to take from.
bool Decode::make_room(Context& context, uint32_t needy) {
  const uint64_t own_age = sequences_[needy]->age;
  uint64_t youngest = own_age;
  bool alone = true;
  for (const std::optional<Sequence>& sequence : sequences_) {
    if (!sequence) continue;
    alone = alone && sequence->age == own_age;
    youngest = std::max(youngest, sequence->age);
  }
  if (!alone) {
    preempt(context, youngest);
    return youngest != own_age;
  }
  return make_room_among_choices(context, needy);
}

// Only choices of one request are left, the younger of which can wait: what they gave up they
// compute again when an older one has ended. The oldest never waits for the others. First goes what
// one of them has for itself; then what they share, which is free when the last of them has given
// it.
bool Decode::make_room_among_choices(Context& context, uint32_t needy) {
  Sequence* with_own = nullptr;  // the youngest of those
  Sequence* with_any = nullptr;
  bool oldest = true;
  for (std::optional<Sequence>& sequence : sequences_) {
    if (!sequence || sequence->slot == sequences_[needy]->slot) continue;
    oldest = oldest && older(*sequences_[needy], *sequence);
    if (!older(*sequences_[needy], *sequence)) continue;
    const bool any = !sequence->spare.empty() || !sequence->blocks.empty();
    const bool own = !sequence->spare.empty() || (any && !shared(sequence->block_table.back()));
    if (own && (!with_own || older(*with_own, *sequence))) with_own = &*sequence;
    if (any && (!with_any || older(*with_any, *sequence))) with_any = &*sequence;
  }
  if (with_own || with_any) {
    set_aside(with_own ? *with_own : *with_any, with_own == nullptr);
    return true;
  }
  if (!oldest) {
    set_aside(*sequences_[needy], false);
    return false;
  }
  const bool come_back = !incoming_.empty() || earlier_.blocks() > 0 || !copies_.empty();
  if (come_back) return false;
  log_warning("a sequence needs more KV blocks than the pool has; it ends with an error");
  break_off(context, *sequences_[needy], Finish::error);
  return false;
}

// The full blocks that are computed, for sequences that begin alike. While the prompt is scored,
// the last position of a chunk is computed twice.
void Decode::keep_blocks(Sequence& sequence) {
  if (sequence.prefix_root == PrefixHash{} || sequence.scoring) return;
  const uint32_t block_tokens = engine_.geometry().block_tokens;
  const size_t full = sequence.computed / block_tokens;
  if (full <= sequence.kept_blocks) return;
  std::vector<PrefixHash>& names = sequence.names;
  while (names.size() < full) {
    const auto block =
        std::span(sequence.tokens).subspan(names.size() * block_tokens, block_tokens);
    names.push_back(prefix_next(names.empty() ? sequence.prefix_root : names.back(), block));
  }
  if (cache_.keep(std::span(names).first(full), sequence.blocks, sequence.kept_blocks)) {
    sequence.block_table = block_ids(sequence.blocks);
  }
  sequence.kept_blocks = full;
}

// Gives back what only this sequence uses, or its part in what others use too.
void Decode::set_aside(Sequence& sequence, bool everything) {
  CHECK(!sequence.in_step);
  ++counters_.set_aside;
  drop_copies(sequence.blocks);
  sequence.spare.clear();
  uint32_t kept = 0;
  while (!everything && kept < sequence.blocks.size() && shared(sequence.block_table[kept])) {
    ++kept;
  }
  sequence.blocks.resize(kept);
  sequence.block_table.resize(kept);
  sequence.computed = std::min(sequence.computed, kept * engine_.geometry().block_tokens);
  sequence.kept_blocks = std::min<size_t>(sequence.kept_blocks, kept);
  if (!sequence.scoring) return;
  sequence.scores = {};
  sequence.computed = 0;
}

// These blocks go: nothing is to be copied into them any more.
void Decode::drop_copies(const std::vector<BlockLease>& targets) {
  std::erase_if(copies_, [&](const Copy& copy) {
    return std::any_of(targets.begin(), targets.end(),
                       [&](const BlockLease& target) { return target.id() == copy.to; });
  });
}

// A request loses all its slots and blocks; one word about one of them suffices.
void Decode::preempt(Context& context, uint64_t age) {
  ++counters_.preempted;
  bool told = false;
  for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
    const std::optional<Sequence>& sequence = sequences_[slot];
    if (!sequence || sequence->age != age) continue;
    if (!told) {
      context.send(joining_.scheduler(), Preempted{sequence->slot},
                   {sequence->request, sequence->epoch, 0, kNever});
    }
    told = true;
    retained_.drop(sequence->request, sequence->choice, sequence->epoch);
    end(context, slot, Finish::none);
  }
}

}  // namespace baton
