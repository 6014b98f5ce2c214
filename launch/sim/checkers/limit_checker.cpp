#include "launch/sim/checkers/limit_checker.h"

namespace baton {

void LimitChecker::at_most(const std::string& what, uint64_t value, uint64_t limit) {
  if (value <= limit) return;
  findings_.add("limit",
                what + ": " + std::to_string(value) + ", the limit is " + std::to_string(limit));
}

void LimitChecker::posted(const Mail& mail) {
  const Envelope& e = mail.envelope;
  if (e.from.rank != 0 || e.from.slot != kSchedulerSlot) return;
  if (e.kind == Admitted::kind && e.epoch == Epoch{1}) fresh_.insert(e.request);
  if (e.kind == Reserve::kind || e.kind == Failed::kind) fresh_.erase(e.request);
  at_most("requests that wait for their first place", fresh_.size(),
          cluster_.plan().limits.queued_requests_max);
}

void LimitChecker::delivered(const Mail& mail) {
  const Envelope& e = mail.envelope;
  if (e.to.rank != 0 || e.to.slot != kSchedulerSlot) return;
  if (e.kind == Cancel::kind || e.kind == Done::kind) fresh_.erase(e.request);
}

void LimitChecker::look() {
  const Limits& limits = cluster_.plan().limits;
  if (const Scheduler* scheduler = cluster_.scheduler()) {
    at_most("live requests", scheduler->requests().size(), limits.live_requests_max);
  }
  if (const Gateway* gateway = cluster_.gateway()) {
    at_most("client sessions", gateway->sessions(), limits.clients_max);
    at_most("kept results", gateway->kept_results(), limits.results_kept_max);
  }
  for (uint32_t rank : cluster_.decode_ranks()) {
    const Decode* decode = cluster_.decode(rank);
    if (!decode) continue;
    at_most("running sequences", decode->running(), limits.decode_slots);
    at_most("reservations", decode->reservations(), limits.decode_slots);
    at_most("free blocks", decode->blocks_free(), cluster_.blocks_at(rank, false));
  }
}

}  // namespace baton
