#include <doctest/doctest.h>

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "launch/sim/sim_main.h"
#include "launch/sim/sim_options.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

// What actors warn of is what these tests do to them. Set before the first of them runs.
[[maybe_unused]] const bool kQuiet = [] {
  log_open({.level = LogLevel::error, .name = "sim"});
  return true;
}();

SimReport run(uint64_t seed, bool calm = false) {
  name_seed_on_abort(seed);
  SimOptions options;
  options.seed = seed;
  options.calm = calm;
  return run_seed(options);
}

void check(const SimReport& report) {
  std::string text = "seed " + std::to_string(report.seed) + ": " + report.plan;
  for (const Finding& finding : report.findings) {
    text += "\n  " + finding.checker + ": " + finding.text;
  }
  text += "\n  replay: baton sim --seed " + std::to_string(report.seed) + " --trace";
  CHECK_MESSAGE(report.ok(), text);
}

std::vector<uint64_t> past_failures() {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/sim/seeds.txt");
  std::vector<uint64_t> seeds;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() || line[0] == '#') continue;
    seeds.push_back(std::stoull(line));
  }
  return seeds;
}

TEST_CASE("500 seeds: every promise holds under faults, and the cluster comes to rest") {
  SimReport sum;
  for (uint64_t seed = 1; seed <= 500; ++seed) {
    const SimReport report = run(seed);
    check(report);
    sum.jobs += report.jobs;
    sum.done += report.done;
    sum.migrations += report.migrations;
    sum.preemptions += report.preemptions;
    sum.crashes += report.crashes;
    sum.restarts += report.restarts;
    sum.stalls += report.stalls;
    sum.cuts += report.cuts;
    sum.corrupt += report.corrupt;
    sum.stale += report.stale;
    sum.cache_hit += report.cache_hit;
    sum.local_prefills += report.local_prefills;
    sum.updates_committed += report.updates_committed;
    sum.updates_failed += report.updates_failed;
  }
  // The faults are really there, and most jobs succeed all the same.
  CHECK(sum.done > sum.jobs / 2);
  CHECK(sum.migrations > 100);
  CHECK(sum.preemptions > 100);
  CHECK(sum.cache_hit > 5000);
  CHECK(sum.local_prefills > 200);
  CHECK(sum.crashes > 100);
  CHECK(sum.restarts > 50);
  CHECK(sum.stalls > 100);
  CHECK(sum.cuts > 100);
  CHECK(sum.corrupt > 20);
  CHECK(sum.stale > 100);
  CHECK(sum.updates_committed > 200);
  CHECK(sum.updates_failed > 100);
}

TEST_CASE("in a cluster without faults no request fails but by its client's wish or a full queue") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const SimReport report = run(seed, true);
    check(report);
    CHECK(report.migrations == 0);
    CHECK(report.crashes == 0);
  }
}

TEST_CASE("seeds that failed once pass") {
  const std::vector<uint64_t> seeds = past_failures();
  CHECK_FALSE(seeds.empty());
  for (uint64_t seed : seeds) check(run(seed));
}

TEST_CASE("a seed runs the same way each time") {
  for (uint64_t seed : {3u, 77u, 158u, 311u, 499u}) {
    const SimReport first = run(seed);
    const SimReport second = run(seed);
    CHECK(first.trace_hash == second.trace_hash);
    CHECK(first.deliveries == second.deliveries);
    CHECK(first.virtual_us == second.virtual_us);
    CHECK(first.trace_hash != run(seed + 1000).trace_hash);
  }
}

}  // namespace
}  // namespace baton
