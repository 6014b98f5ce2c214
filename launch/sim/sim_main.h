#pragma once

#include <cstdint>
#include <string>

#include "launch/sim/sim_options.h"

namespace baton {

// What `baton sim` was asked for.
struct SimArguments {
  uint64_t first_seed = 1;
  uint64_t last_seed = 1;  // inclusive
  bool trace = false;      // one line for each message and fault; for one seed
  bool calm = false;
  bool verbose = false;  // one line for each seed
  std::string sabotage;  // name of a broken variant; empty: none
};

// Runs the seeds and prints a summary; for the first that fails, what was found and how to run it
// again. Returns 0 when all pass, 1 when one fails, 64 when the arguments make no sense.
int sim_main(const SimArguments& arguments);

// From now on, a CHECK that fails names this seed before the process ends.
void name_seed_on_abort(uint64_t seed);

}  // namespace baton
