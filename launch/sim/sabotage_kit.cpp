#include "launch/sim/sabotage_kit.h"

#include <algorithm>

#include "actors/protocol/decode.h"
#include "actors/protocol/gateway.h"
#include "runtime/actor/engine.h"
#include "runtime/actor/wire.h"

namespace baton {
namespace {

// Rewrites the message in a mail.
template <Message M, class Change>
void rewrite(Mail& mail, Change change) {
  Result<M> message = decode_body<M>(mail.body, Limits{});
  if (!message.ok()) return;
  change(*message);
  mail.body = encode_body(*message);
}

void mix_choices(Tokens& tokens) {
  for (size_t i = 1; i < tokens.entries.size(); ++i) {
    TokenEntry& a = tokens.entries[i - 1];
    TokenEntry& b = tokens.entries[i];
    if (a.request != b.request || !a.has_token || !b.has_token) continue;
    std::swap(a.id, b.id);
    std::swap(a.logprob, b.logprob);
  }
}

}  // namespace

const char* sabotage_name(Sabotage sabotage) noexcept {
  switch (sabotage) {
    case Sabotage::none: return "none";
    case Sabotage::end_receives_early: return "end-receives-early";
    case Sabotage::skip_quarantine: return "skip-quarantine";
    case Sabotage::corrupt_after_digest: return "corrupt-after-digest";
    case Sabotage::accept_stale_epoch: return "accept-stale-epoch";
    case Sabotage::swap_tokens: return "swap-tokens";
    case Sabotage::wrong_logprob: return "wrong-logprob";
    case Sabotage::lose_client_tokens: return "lose-client-tokens";
    case Sabotage::lose_terminal: return "lose-terminal";
    case Sabotage::repeat_terminal: return "repeat-terminal";
    case Sabotage::garble_text: return "garble-text";
    case Sabotage::double_lease: return "double-lease";
    case Sabotage::lose_slot_freed: return "lose-slot-freed";
    case Sabotage::lose_kv_sent: return "lose-kv-sent";
    case Sabotage::ignore_cancel: return "ignore-cancel";
    case Sabotage::stop_decoding: return "stop-decoding";
    case Sabotage::overfill_queue: return "overfill-queue";
    case Sabotage::write_shared: return "write-shared";
    case Sabotage::free_twice: return "free-twice";
    case Sabotage::mix_choices: return "mix-choices";
  }
  return "unknown";
}

std::vector<Sabotage> all_sabotages() {
  std::vector<Sabotage> all;
  for (int i = 1; i <= static_cast<int>(Sabotage::mix_choices); ++i) {
    all.push_back(static_cast<Sabotage>(i));
  }
  return all;
}

void SabotageKit::adjust(SwarmPlan& plan) const {
  if (sabotage_ == Sabotage::overfill_queue) {
    plan.limits.queued_requests_max = 1;
    plan.scheduler_queue_extra = 100;
    plan.clients.think_us_max = 0;
  }
  if (sabotage_ == Sabotage::skip_quarantine) {
    plan.chaos.fabric.slow = 0.5;
    plan.chaos.fabric.slow_us_max = kSecond;
    plan.clients.cancel = 0.5;
  }
}

FabricSabotage SabotageKit::fabric() const {
  if (sabotage_ == Sabotage::end_receives_early) return FabricSabotage::end_receives_early;
  if (sabotage_ == Sabotage::corrupt_after_digest) return FabricSabotage::corrupt_after_digest;
  if (sabotage_ == Sabotage::skip_quarantine) return FabricSabotage::skip_quarantine;
  return FabricSabotage::none;
}

std::pair<Saboteur::Change, Saboteur::Change> SabotageKit::for_actor(uint32_t slot) {
  if (slot == kGatewaySlot) {
    return {[this](Mail& mail) { return hear_gateway(mail); }, {}};
  }
  if (slot == kDecodeSlot) {
    return {[this](Mail& mail) { return hear_decode(mail); },
            [this](Mail& mail) { return say_decode(mail); }};
  }
  const MsgKind unheard = slot == kPrefillSlot ? MsgKind::kv_sent : MsgKind::cancel;
  const Sabotage deaf = slot == kPrefillSlot ? Sabotage::lose_kv_sent : Sabotage::ignore_cancel;
  if (sabotage_ != deaf) return {};
  return {[unheard](Mail& mail) { return mail.envelope.kind != unheard; }, {}};
}

void SabotageKit::change_batch(Batch& batch) const {
  if (sabotage_ != Sabotage::write_shared) return;
  for (const BlockCopy& copy : batch.copies) {
    for (BatchRow& row : batch.rows) {
      std::replace(row.blocks.begin(), row.blocks.end(), copy.to, copy.from);
    }
  }
  batch.copies.clear();
}

bool SabotageKit::hear_gateway(Mail& mail) {
  const Envelope& e = mail.envelope;
  if (e.kind == MsgKind::admitted || e.kind == MsgKind::freeze) {
    Epoch& epoch = epochs_[e.request];
    epoch = std::max(epoch, e.epoch);
  }
  if (e.kind != MsgKind::tokens) return true;
  if (sabotage_ == Sabotage::accept_stale_epoch) {
    rewrite<Tokens>(mail, [this](Tokens& tokens) {
      for (TokenEntry& entry : tokens.entries) {
        entry.epoch = std::max(entry.epoch, epochs_[entry.request]);
      }
    });
  }
  if (sabotage_ == Sabotage::mix_choices) rewrite<Tokens>(mail, mix_choices);
  if (sabotage_ == Sabotage::wrong_logprob && ++count_ % 5 == 0) {
    rewrite<Tokens>(mail, [](Tokens& tokens) { tokens.entries.front().logprob -= 0.25f; });
  }
  return true;
}

bool SabotageKit::hear_decode(const Mail& mail) {
  if (sabotage_ != Sabotage::stop_decoding || mail.envelope.kind != MsgKind::step_done) return true;
  return ++count_ < 5;
}

bool SabotageKit::say_decode(Mail& mail) {
  if (sabotage_ == Sabotage::lose_slot_freed && mail.envelope.kind == MsgKind::slot_freed) {
    return ++count_ % 2 == 0;
  }
  if (sabotage_ == Sabotage::free_twice && mail.envelope.kind == MsgKind::slot_freed) {
    rewrite<SlotFreed>(mail, [this](SlotFreed& freed) {
      if (freed.choice > 0) freed.slot = last_freed_;
      last_freed_ = freed.slot;
    });
  }
  if (sabotage_ == Sabotage::double_lease && mail.envelope.kind == MsgKind::reserved) {
    rewrite<Reserved>(mail, [this](Reserved& reserved) {
      std::vector<BlockId> mine = reserved.blocks;
      if (!mine.empty() && !last_reserved_.empty()) reserved.blocks[0] = last_reserved_[0];
      last_reserved_ = std::move(mine);
    });
  }
  return true;
}

std::vector<Mail> SabotageKit::to_client(const Mail& mail) {
  Mail changed = mail;
  const MsgKind kind = mail.envelope.kind;
  if (kind == MsgKind::client_done) {
    if (sabotage_ == Sabotage::lose_terminal && ++count_ % 3 == 0) return {};
    if (sabotage_ == Sabotage::repeat_terminal && ++count_ % 3 == 0) return {mail, mail};
  }
  if (kind != MsgKind::client_tokens) return {mail};
  if (sabotage_ == Sabotage::lose_client_tokens && ++count_ % 7 == 0) return {};
  if (sabotage_ == Sabotage::garble_text && ++count_ % 7 == 0) {
    rewrite<ClientTokens>(changed, [](ClientTokens& part) { part.text += "?"; });
  }
  if (sabotage_ == Sabotage::swap_tokens) {
    rewrite<ClientTokens>(changed, [](ClientTokens& part) {
      if (part.ids.size() > 1) std::swap(part.ids[0], part.ids[1]);
    });
  }
  return {changed};
}

}  // namespace baton
