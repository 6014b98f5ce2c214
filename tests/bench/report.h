#pragma once

#include <string>
#include <vector>

#include "kernels/isa.h"
#include "tests/bench/probe.h"

namespace baton::bench {

// One measurement beside the limit that binds it: bytes from memory or operations, counted from
// first principles.
struct Line {
  std::string name;  // "linear q4_1 rows 8"
  int threads = 1;
  double bytes = 0;       // that must come from memory
  double operations = 0;  // of the unit below
  bool integer = true;    // int8 operations, else f32
  double best_s = 0;
  double median_s = 0;
};

struct Report {
  Isa isa = Isa::scalar;
  std::vector<Limits> limits;  // [threads - 1]
  std::vector<Line> lines;
};

std::string as_table(const Report& report);
std::string as_json(const Report& report);

}  // namespace baton::bench
