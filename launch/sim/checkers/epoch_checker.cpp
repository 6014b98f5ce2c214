#include "launch/sim/checkers/epoch_checker.h"

#include "runtime/actor/wire.h"

namespace baton {

void EpochChecker::delivered(const Mail& mail) {
  const Envelope& e = mail.envelope;
  if (e.to.rank != 0 || e.to.slot != kGatewaySlot) return;
  if (e.kind == Admitted::kind || e.kind == Freeze::kind) {
    raise(requests_[e.request], e.epoch);
  } else if (e.kind == Tokens::kind) {
    const auto tokens = decode_body<Tokens>(mail.body, Limits{});
    if (tokens.ok()) take(*tokens);
  }
}

void EpochChecker::raise(Request& request, Epoch epoch) {
  if (epoch <= request.epoch) return;
  request.epoch = epoch;
  for (auto& [number, choice] : request.choices) {
    choice.seqs.erase(choice.seqs.begin(), choice.seqs.lower_bound(epoch));
    move_on(epoch, choice);
  }
}

void EpochChecker::take(const Tokens& tokens) {
  for (const TokenEntry& entry : tokens.entries) {
    Request& request = requests_[entry.request];
    if (entry.epoch < request.epoch) {
      ++stale_;
      continue;
    }
    Choice& choice = request.choices[entry.choice];
    choice.seqs[entry.epoch].insert(entry.seq);
    move_on(request.epoch, choice);
  }
}

void EpochChecker::move_on(Epoch epoch, Choice& choice) {
  const auto current = choice.seqs.find(epoch);
  if (current == choice.seqs.end()) return;
  while (current->second.contains(choice.frontier)) ++choice.frontier;
}

void EpochChecker::sent(const Mail& mail) {
  if (mail.envelope.kind != ClientTokens::kind) return;
  const auto part = decode_body<ClientTokens>(mail.body, Limits{});
  if (!part.ok()) return;
  const uint32_t frontier = requests_[mail.envelope.request].choices[part->choice].frontier;
  const uint64_t end = part->seq + part->ids.size();
  if (end <= frontier) return;
  findings_.add("epoch", "request " + std::to_string(mail.envelope.request.value) +
                             ": the client gets token " + std::to_string(end - 1) + ", but only " +
                             std::to_string(frontier) + " have arrived under a current epoch");
}

}  // namespace baton
