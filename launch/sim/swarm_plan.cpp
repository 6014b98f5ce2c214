#include "launch/sim/swarm_plan.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {
namespace {

// A rate or chance in (0, max], in about half of the runs.
double some(SimRandom& random, double max, double how_often = 0.5) {
  if (!random.chance(how_often)) return 0;
  return max * static_cast<double>(random.between(1, 1000)) / 1000;
}

ChaosPlan draw_chaos(SimRandom& random) {
  ChaosPlan chaos;
  chaos.network.latency_max = random.between(50, 5000);
  chaos.network.drop = some(random, 0.2);
  chaos.network.duplicate = some(random, 0.2);
  chaos.network.late = some(random, 0.05);
  chaos.network.late_max = random.between(1, 1000) * kMillisecond;
  chaos.fabric.piece_us_max = random.between(50, 3000);
  chaos.fabric.slow = some(random, 0.2);
  chaos.fabric.slow_us_max = random.between(10, 4000) * kMillisecond;
  chaos.fabric.fail = some(random, 0.1);
  chaos.fabric.corrupt = some(random, 0.1);
  chaos.fabric.unwithdrawn = some(random, 1.0);
  chaos.cuts = some(random, 1.2);
  chaos.clogs = some(random, 1.0);
  chaos.crashes = some(random, 1.2);
  chaos.stalls = some(random, 1.2);
  chaos.control_stalls = some(random, 0.4, 0.3);
  chaos.actor_failures = some(random, 0.8, 0.4);
  chaos.fail_at_message = some(random, 0.004, 0.3);
  chaos.crash_at_message = some(random, 0.004, 0.3);
  chaos.cut_us_max = random.between(300, 5000) * kMillisecond;
  chaos.stall_us_max = random.between(50, 6000) * kMillisecond;
  return chaos;
}

void draw_limits(SimRandom& random, Limits& limits) {
  limits.decode_slots = static_cast<size_t>(random.between(1, random.chance(0.3) ? 12 : 6));
  limits.prefill_window = static_cast<size_t>(random.between(1, 6));
  limits.prompts_per_pack_max = static_cast<size_t>(random.between(1, 8));
  limits.stream_ahead_max = random.chance(0.3) ? 8 : 256;
  limits.lease_us = random.between(3, 30) * kSecond;
  limits.stage_us = random.between(4, 20) * kSecond;
  if (random.chance(0.3)) limits.queued_requests_max = static_cast<size_t>(random.between(2, 12));
  if (random.chance(0.2)) limits.mailbox_work_max = static_cast<size_t>(random.between(2, 16));
  if (random.chance(0.2)) limits.results_kept_max = 4;
}

ClientPlan draw_clients(SimRandom& random) {
  ClientPlan clients;
  clients.clients = static_cast<uint32_t>(random.between(1, 7));
  clients.jobs_each = static_cast<uint32_t>(random.between(2, 12));
  clients.prompt_max = static_cast<uint32_t>(random.between(4, 80));
  clients.new_max = static_cast<uint32_t>(random.between(1, random.chance(0.3) ? 100 : 40));
  clients.think_us_max = random.between(0, 1500) * kMillisecond;
  clients.share_key = some(random, 0.3, 0.3);
  clients.cancel = some(random, 0.5);
  clients.disconnect = some(random, 0.4);
  clients.leave = some(random, 0.5, 0.3);
  clients.deadline = some(random, 0.4, 0.3);
  clients.away_us_max = random.between(10, 1500) * kMillisecond;
  return clients;
}

}  // namespace

SwarmPlan draw_plan(SimRandom& random, bool calm) {
  SwarmPlan plan;
  plan.prefill_ranks = static_cast<uint32_t>(random.between(1, 3));
  plan.decode_ranks = static_cast<uint32_t>(random.between(1, 3));
  plan.context_max = static_cast<uint32_t>(random.between(5, 10)) * 16;
  const uint32_t least = plan.context_max / 16 + 1;  // blocks: one sequence must fit
  plan.prefill_blocks = least + static_cast<uint32_t>(random.between(0, 24));
  plan.decode_blocks = least + static_cast<uint32_t>(random.between(0, 24));
  plan.step_tokens_max = random.chance(0.5) ? plan.context_max : plan.context_max * 2;
  plan.chunking = random.chance(0.5);
  plan.pack_policy = random.chance(0.5) ? PackPolicy::buckets : PackPolicy::token_budget;
  plan.pieces_max = random.chance(0.2) ? 12 : 256;
  plan.step_us_max = random.between(200, 20000);
  plan.handler_us_max = random.chance(0.3) ? random.between(20, 3000) : 20;
  plan.safety_us = random.between(3, 10) * kSecond;
  draw_limits(random, plan.limits);
  plan.clients = draw_clients(random);
  plan.clients.choices_max = std::min<uint32_t>(8, static_cast<uint32_t>(plan.limits.decode_slots));
  plan.catch_up_tokens = static_cast<uint32_t>(random.between(1, 64));
  if (random.chance(0.3)) plan.min_decode_steps = static_cast<uint32_t>(random.between(2, 6));
  // Drawn in any case, so that a calm run of a seed has the same cluster and clients.
  const ChaosPlan chaos = draw_chaos(random);
  if (!calm) plan.chaos = chaos;
  plan.alone = random.chance(0.15);
  if (plan.alone) {
    plan.prefill_ranks = plan.decode_ranks = 1;
    plan.chaos.fabric.unwithdrawn = 0;  // within a process every send can be withdrawn
    // Shorter than what workers take for their own death, which uses up their restarts.
    plan.chaos.stall_us_max = std::min(plan.chaos.stall_us_max, kSecond);
  }
  return plan;
}

std::string describe(const SwarmPlan& plan) {
  const ChaosPlan& c = plan.chaos;
  return fmt::format(
      "{}{} prefill x {} blocks, {} decode x {} blocks x {} slots, context {}, {} clients x {} "
      "jobs; "
      "drop {:.2f} dup {:.2f} late {:.2f} | kv slow {:.2f} fail {:.2f} corrupt {:.2f} | per "
      "second: "
      "cuts {:.2f} clogs {:.2f} crashes {:.2f} stalls {:.2f}/{:.2f} failures {:.2f} | cancel "
      "{:.2f} "
      "disconnect {:.2f}",
      plan.alone ? "alone: " : "", plan.prefill_ranks, plan.prefill_blocks, plan.decode_ranks,
      plan.decode_blocks, plan.limits.decode_slots, plan.context_max, plan.clients.clients,
      plan.clients.jobs_each, c.network.drop, c.network.duplicate, c.network.late, c.fabric.slow,
      c.fabric.fail, c.fabric.corrupt, c.cuts, c.clogs, c.crashes, c.stalls, c.control_stalls,
      c.actor_failures, plan.clients.cancel, plan.clients.disconnect);
}

}  // namespace baton
