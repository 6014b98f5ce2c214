// Measures the kernels beside what the machine can do, both in one run.
//   bench_kernels [--json] [--quick] [--threads N] [--only TEXT]
// BATON_ISA chooses the instruction set.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <thread>

#include "kernels/isa.h"
#include "kernels/ops.h"
#include "kernels/team.h"
#include "tests/bench/kernel_cases.h"
#include "tests/bench/probe.h"
#include "tests/bench/report.h"

namespace baton::bench {
namespace {

struct Arguments {
  bool json = false;
  int threads_max = 2;
  CaseOptions cases;
};

bool parse(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--json") {
      arguments.json = true;
    } else if (word == "--quick") {
      arguments.cases.quick = true;
    } else if (word == "--threads" && i + 1 < argc) {
      arguments.threads_max = std::atoi(argv[++i]);
    } else if (word == "--only" && i + 1 < argc) {
      arguments.cases.filter = argv[++i];
    } else {
      return false;
    }
  }
  return arguments.threads_max >= 1;
}

int main_of(int argc, char** argv) {
  Arguments arguments;
  if (!parse(argc, argv, arguments)) {
    std::fprintf(stderr,
                 "usage: bench_kernels [--json] [--quick] [--threads N] [--only TEXT]\n"
                 "N is at least 1; TEXT is part of the names of the cases to run.\n");
    return 64;
  }
  const IsaChoice& choice = isa_choice();
  if (choice.error[0] != '\0') {
    std::fprintf(stderr, "%s\n", choice.error);
    return 78;
  }
  Report report;
  report.isa = choice.isa;
  const unsigned cores = std::thread::hardware_concurrency();
  for (int threads = 1; threads <= arguments.threads_max; ++threads) {
    Team team({threads, threads <= static_cast<int>(cores), 0});
    report.limits.push_back(probe(team, choice.isa, arguments.cases.quick));
    run_linear_cases(ops(), team, arguments.cases, report);
    run_attention_cases(ops(), team, arguments.cases, report);
    run_vocabulary_cases(ops(), team, arguments.cases, report);
  }
  const std::string text = arguments.json ? as_json(report) : as_table(report);
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  return baton::bench::main_of(argc, argv);
}
