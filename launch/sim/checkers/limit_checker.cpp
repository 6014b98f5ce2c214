#include "launch/sim/checkers/limit_checker.h"

namespace baton {
namespace {

void at_most(const std::string& what, uint64_t value, uint64_t limit, Findings& findings) {
  if (value <= limit) return;
  findings.add("limit",
               what + " is " + std::to_string(value) + ", the limit is " + std::to_string(limit));
}

}  // namespace

void check_limits(const SimCluster& cluster, Findings& findings) {
  const Limits& limits = cluster.plan().limits;
  if (const Scheduler* scheduler = cluster.scheduler()) {
    const auto by_state = scheduler->requests().by_state();
    // Retries stand in the queue beside the new ones; those that are live are bounded.
    const uint64_t queued = by_state[static_cast<size_t>(RequestState::queued)];
    at_most("queued requests", queued,
            limits.queued_requests_max + scheduler->counters().migrations +
                scheduler->counters().preemptions + scheduler->counters().reserve_refusals,
            findings);
    at_most("live requests", scheduler->requests().size(), limits.live_requests_max, findings);
  }
  if (const Gateway* gateway = cluster.gateway()) {
    at_most("client sessions", gateway->sessions(), limits.clients_max, findings);
    at_most("kept results", gateway->kept_results(), limits.results_kept_max, findings);
  }
  for (uint32_t rank : cluster.decode_ranks()) {
    const Decode* decode = cluster.decode(rank);
    if (!decode) continue;
    at_most("running sequences", decode->running(), limits.decode_slots, findings);
    at_most("reservations", decode->reservations(), limits.decode_slots, findings);
    at_most("free blocks", decode->blocks_free(), cluster.plan().decode_blocks, findings);
  }
}

}  // namespace baton
