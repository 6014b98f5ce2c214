#pragma once

#include "kernels/ops.h"
#include "kernels/team.h"
#include "tests/bench/report.h"

namespace baton::bench {

struct CaseOptions {
  bool quick = false;
  const char* filter = "";  // only cases whose name contains it
};

// The kernels on the shapes of SmolLM2-135M (hidden 576, ffn 1,536, 9 query and 3 kv heads of 64,
// 30 layers, vocabulary 49,152), weights random. Appends a line for each case.
void run_linear_cases(const Ops& ops, Team& team, const CaseOptions& options, Report& report);
void run_attention_cases(const Ops& ops, Team& team, const CaseOptions& options, Report& report);
void run_vocabulary_cases(const Ops& ops, Team& team, const CaseOptions& options, Report& report);

}  // namespace baton::bench
