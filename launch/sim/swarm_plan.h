#pragma once

#include <cstdint>
#include <string>

#include "actors/prefill/packer.h"
#include "runtime/base/limits.h"
#include "runtime/sim/network.h"
#include "runtime/sim/sim_random.h"
#include "transport/sim/sim_fabric.h"

namespace baton {

// Faults and their rates. A rate is per virtual second; a chance is per message.
struct ChaosPlan {
  NetworkFaults network;
  FabricFaults fabric;
  double cuts = 0;
  double clogs = 0;
  double crashes = 0;
  double stalls = 0;            // of workers
  double control_stalls = 0;    // of the control rank
  double actor_failures = 0;    // of a worker actor, at any moment
  double fail_at_message = 0;   // chance that a worker actor breaks at a message
  double crash_at_message = 0;  // chance that a worker process ends at a message
  Micros cut_us_max = 0;
  Micros stall_us_max = 0;
};

// How clients behave. Chances are per job.
struct ClientPlan {
  uint32_t clients = 3;
  uint32_t jobs_each = 4;
  uint32_t prompt_max = 60;
  uint32_t new_max = 24;
  uint32_t choices_max = 1;  // per request
  Micros think_us_max = 0;
  double cancel = 0;
  double disconnect = 0;  // in the middle of it
  double leave = 0;       // chance per client that it goes for good in the middle
  double deadline = 0;
  double share_key = 0;  // same idempotency key as another job
  Micros away_us_max = 0;
};

// One run of the simulator: the shape of the cluster and what happens to it.
struct SwarmPlan {
  bool alone = false;  // gateway, scheduler, prefill and decode in one process
  uint32_t prefill_ranks = 1;
  uint32_t decode_ranks = 1;
  uint32_t prefill_blocks = 32;
  uint32_t decode_blocks = 32;
  uint32_t context_max = 128;
  uint32_t step_tokens_max = 128;
  bool chunking = false;
  uint32_t catch_up_tokens = 64;
  uint32_t min_decode_steps = 1;
  PackPolicy pack_policy = PackPolicy::buckets;
  size_t pieces_max = 256;
  Micros step_us_max = 4000;
  Micros handler_us_max = 20;
  Micros safety_us = 5 * kSecond;
  Limits limits;
  size_t scheduler_queue_extra = 0;  // beyond the limit: for a broken variant
  ChaosPlan chaos;
  ClientPlan clients;
};

// Draws a run. Each kind of fault takes part in some runs only, so that one kind does not hide what
// another would find.
SwarmPlan draw_plan(SimRandom& random, bool calm);
std::string describe(const SwarmPlan& plan);

}  // namespace baton
