#include "launch/sim/sim_main.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>

#include "runtime/base/log.h"

namespace baton {
namespace {

constexpr int kUsage = 64;

std::atomic<uint64_t> current_seed{0};

// Only what may run in a signal handler: digits by hand, write(2).
void on_abort(int) {
  char text[96] = "the simulator was at seed ";
  size_t at = std::strlen(text);
  char digits[20];
  size_t count = 0;
  for (uint64_t rest = current_seed.load(); count == 0 || rest > 0; rest /= 10) {
    digits[count++] = static_cast<char>('0' + rest % 10);
  }
  while (count > 0) text[at++] = digits[--count];
  text[at++] = '\n';
  if (::write(STDERR_FILENO, text, at) < 0) return;
}

std::optional<Sabotage> find_sabotage(const std::string& name) {
  if (name.empty()) return Sabotage::none;
  for (Sabotage sabotage : all_sabotages()) {
    if (name == sabotage_name(sabotage)) return sabotage;
  }
  return std::nullopt;
}

struct Totals {
  uint64_t seeds = 0, failed = 0, jobs = 0, done = 0, refused = 0, tokens = 0, migrations = 0;
  uint64_t preemptions = 0, crashes = 0, restarts = 0, stalls = 0, cuts = 0, stale = 0;
  uint64_t corrupt = 0, deliveries = 0, updates = 0, updates_committed = 0;
  Micros virtual_us = 0;

  void add(const SimReport& r) {
    ++seeds;
    failed += !r.ok();
    jobs += r.jobs;
    done += r.done;
    refused += r.refused;
    tokens += r.tokens;
    migrations += r.migrations;
    preemptions += r.preemptions;
    crashes += r.crashes;
    restarts += r.restarts;
    stalls += r.stalls;
    cuts += r.cuts;
    stale += r.stale;
    corrupt += r.corrupt;
    deliveries += r.deliveries;
    updates += r.updates;
    updates_committed += r.updates_committed;
    virtual_us += r.virtual_us;
  }
};

void print_failure(const SimReport& report, const SimArguments& arguments) {
  fmt::print("\nseed {} failed: {} findings\n  {}\n", report.seed, report.findings.size(),
             report.plan);
  for (const Finding& finding : report.findings) {
    fmt::print("  {:<9} {}\n", finding.checker, finding.text);
  }
  fmt::print("  replay: baton sim --seed {} --trace{}{}{}\n", report.seed,
             arguments.calm ? " --calm" : "", arguments.sabotage.empty() ? "" : " --sabotage ",
             arguments.sabotage);
}

void print_totals(const Totals& t, double seconds) {
  fmt::print(
      "{} seeds, {} failed; {:.1f} s, {:.0f} s of virtual time, {} messages\n"
      "  clients   {} jobs: {} done, {} refused, cancelled or given up; {} tokens checked\n"
      "  faults    {} process crashes, {} actor failures, {} stalls, {} cuts, {} corrupt pieces\n"
      "  recovery  {} migrations, {} preemptions, {} stale messages fenced off\n"
      "  weights   {} updates asked for, {} committed\n",
      t.seeds, t.failed, seconds, static_cast<double>(t.virtual_us) / kSecond, t.deliveries, t.jobs,
      t.done, t.refused, t.tokens, t.crashes, t.restarts, t.stalls, t.cuts, t.corrupt, t.migrations,
      t.preemptions, t.stale, t.updates, t.updates_committed);
}

}  // namespace

void name_seed_on_abort(uint64_t seed) {
  current_seed = seed;
  std::signal(SIGABRT, on_abort);
}

int sim_main(const SimArguments& arguments) {
  const std::optional<Sabotage> sabotage = find_sabotage(arguments.sabotage);
  if (!sabotage) {
    fmt::print(stderr, "sabotage '{}' is not known; expected one of:", arguments.sabotage);
    for (Sabotage known : all_sabotages()) fmt::print(stderr, " {}", sabotage_name(known));
    fmt::print(stderr, "\n");
    return kUsage;
  }
  if (arguments.last_seed < arguments.first_seed) {
    fmt::print(stderr, "the seeds go from {} to {}; expected the first one not to be greater\n",
               arguments.first_seed, arguments.last_seed);
    return kUsage;
  }
  // What actors warn of is what the simulator does to them.
  if (!arguments.trace) log_open({.level = LogLevel::error, .name = "sim"});
  Totals totals;
  const auto begun = std::chrono::steady_clock::now();
  for (uint64_t seed = arguments.first_seed; seed <= arguments.last_seed; ++seed) {
    name_seed_on_abort(seed);
    SimOptions options;
    options.seed = seed;
    options.sabotage = *sabotage;
    options.calm = arguments.calm;
    if (arguments.trace) {
      options.trace = [](const std::string& line) { fmt::print("{}\n", line); };
    }
    const SimReport report = run_seed(options);
    totals.add(report);
    if (arguments.verbose || arguments.trace) {
      fmt::print("seed {}: {}, {} jobs, {} tokens, hash {:016x}\n  {}\n", seed,
                 report.ok() ? "ok" : "FAILED", report.jobs, report.tokens, report.trace_hash,
                 report.plan);
    }
    if (!report.ok()) print_failure(report, arguments);
    std::fflush(stdout);
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begun;
  print_totals(totals, took.count());
  return totals.failed == 0 ? 0 : 1;
}

}  // namespace baton
