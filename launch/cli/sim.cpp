#include "launch/sim/sim_main.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "launch/cli/client_options.h"

namespace baton::cli {
namespace {

// "7" or "1..500".
bool parse_seeds(const std::string& text, uint64_t& first, uint64_t& last) {
  char* rest = nullptr;
  first = std::strtoull(text.c_str(), &rest, 10);
  if (rest == text.c_str()) return false;
  last = first;
  if (*rest == '\0') return true;
  if (std::string(rest).rfind("..", 0) != 0) return false;
  const char* second = rest + 2;
  last = std::strtoull(second, &rest, 10);
  return rest != second && *rest == '\0' && last >= first;
}

}  // namespace

int simulate_main(int argc, char** argv) {
  Command command("sim",
                  "Run the actors of a whole cluster on a virtual clock, under faults drawn from a "
                  "seed, and check every promise");
  SimArguments arguments;
  std::string seeds = "1..100";
  int64_t seed = -1;
  command.option("--seeds", seeds, "Seeds, first..last");
  command.option("--seed", seed, "One seed, in place of --seeds");
  command.flag("--trace", arguments.trace, "Print every message and fault (of one seed)");
  command.flag("--calm", arguments.calm, "No faults; clients still do as they like");
  command.flag("--verbose,-v", arguments.verbose, "A line for each seed");
  command.option("--sabotage", arguments.sabotage,
                 "Break a rule on purpose, to see its checker bite");
  if (const auto status = command.parse(argc, argv)) return *status;
  if (seed >= 0) seeds = std::to_string(seed);
  if (!parse_seeds(seeds, arguments.first_seed, arguments.last_seed)) {
    std::fprintf(stderr, "baton sim: --seeds is '%s'; expected something like 1..500\n",
                 seeds.c_str());
    return kUsage;
  }
  return sim_main(arguments);
}

}  // namespace baton::cli
