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
  request.seqs.erase(request.seqs.begin(), request.seqs.lower_bound(epoch));
  move_on(request);
}

void EpochChecker::take(const Tokens& tokens) {
  for (const TokenEntry& entry : tokens.entries) {
    Request& request = requests_[entry.request];
    if (entry.epoch < request.epoch) {
      ++stale_;
      continue;
    }
    request.seqs[entry.epoch].insert(entry.seq);
    move_on(request);
  }
}

void EpochChecker::move_on(Request& request) {
  const auto current = request.seqs.find(request.epoch);
  if (current == request.seqs.end()) return;
  while (current->second.contains(request.frontier)) ++request.frontier;
}

void EpochChecker::sent(const Mail& mail) {
  if (mail.envelope.kind != ClientTokens::kind) return;
  const auto part = decode_body<ClientTokens>(mail.body, Limits{});
  if (!part.ok()) return;
  const Request& request = requests_[mail.envelope.request];
  const uint64_t end = part->seq + part->ids.size();
  if (end <= request.frontier) return;
  findings_.add("epoch", "request " + std::to_string(mail.envelope.request.value) +
                             ": the client gets token " + std::to_string(end - 1) + ", but only " +
                             std::to_string(request.frontier) +
                             " have arrived under a current epoch");
}

}  // namespace baton
