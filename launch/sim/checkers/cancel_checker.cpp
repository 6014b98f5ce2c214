#include "launch/sim/checkers/cancel_checker.h"

#include "actors/protocol/scheduler.h"

namespace baton {

void CancelChecker::posted(const Mail& mail) {
  const Envelope& e = mail.envelope;
  if (e.kind == Reserved::kind) ++leases_[e.request];
  if (e.kind == SlotFreed::kind && leases_[e.request] > 0) --leases_[e.request];
  if (e.kind != Cancel::kind || e.from.slot != kGatewaySlot) return;
  world_.at(within_, [this, request = e.request] {
    if (leases_[request] == 0) return;
    findings_.add("cancel", "request " + std::to_string(request.value) + " still holds a slot " +
                                std::to_string(within_ / kMillisecond) +
                                " ms after it was cancelled");
  });
}

}  // namespace baton
