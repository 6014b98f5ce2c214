#include "tests/bench/report.h"

#include <algorithm>
#include <cstdio>

namespace baton::bench {
namespace {

struct Binding {
  const char* name;
  double fraction;  // of the limit, both at their best
};

Binding binding(const Line& line, const Limits& limits) {
  const double memory_s = line.bytes / (limits.read_gbs * 1e9);
  const double peak = line.integer ? limits.int8_gops : limits.fma_gflops;
  const double compute_s = line.operations / (peak * 1e9);
  const char* name = memory_s > compute_s ? "memory" : line.integer ? "int8" : "fma";
  return {name, std::max(memory_s, compute_s) / line.best_s};
}

template <class... Args>
void append(std::string& out, const char* format, Args... args) {
  char text[256];
  std::snprintf(text, sizeof text, format, args...);
  out += text;
}

const Limits& limits_of(const Report& report, const Line& line) {
  return report.limits[static_cast<std::size_t>(line.threads) - 1];
}

}  // namespace

std::string as_table(const Report& report) {
  std::string out;
  append(out, "instruction set: %s\n", isa_name(report.isa));
  append(out, "%-8s %12s %12s %12s %12s\n", "threads", "read GB/s", "memcpy GB/s", "int8 GOP/s",
         "fma GFLOP/s");
  for (std::size_t i = 0; i < report.limits.size(); ++i) {
    const Limits& l = report.limits[i];
    append(out, "%-8zu %12.1f %12.1f %12.0f %12.0f\n", i + 1, l.read_gbs, l.memcpy_gbs, l.int8_gops,
           l.fma_gflops);
  }
  append(out, "\n%-34s %3s %10s %10s %8s %8s %-7s %6s\n", "case", "thr", "best us", "median us",
         "GB/s", "GOP/s", "limit", "of it");
  for (const Line& line : report.lines) {
    const Binding b = binding(line, limits_of(report, line));
    append(out, "%-34s %3d %10.1f %10.1f %8.1f %8.0f %-7s %5.2f\n", line.name.c_str(), line.threads,
           line.best_s * 1e6, line.median_s * 1e6, line.bytes / line.best_s / 1e9,
           line.operations / line.best_s / 1e9, b.name, b.fraction);
  }
  return out;
}

std::string as_json(const Report& report) {
  std::string out;
  append(out, "{\"isa\":\"%s\",\"limits\":[", isa_name(report.isa));
  for (std::size_t i = 0; i < report.limits.size(); ++i) {
    const Limits& l = report.limits[i];
    append(out, "%s{\"threads\":%zu,\"read_gbs\":%.3f,\"memcpy_gbs\":%.3f,\"int8_gops\":%.2f,",
           i == 0 ? "" : ",", i + 1, l.read_gbs, l.memcpy_gbs, l.int8_gops);
    append(out, "\"fma_gflops\":%.2f}", l.fma_gflops);
  }
  out += "],\"lines\":[";
  for (std::size_t i = 0; i < report.lines.size(); ++i) {
    const Line& line = report.lines[i];
    const Binding b = binding(line, limits_of(report, line));
    append(out, "%s{\"name\":\"%s\",\"threads\":%d,\"bytes\":%.0f,\"operations\":%.0f,",
           i == 0 ? "" : ",", line.name.c_str(), line.threads, line.bytes, line.operations);
    append(out, "\"best_us\":%.3f,\"median_us\":%.3f,\"limit\":\"%s\",\"fraction\":%.4f}",
           line.best_s * 1e6, line.median_s * 1e6, b.name, b.fraction);
  }
  out += "]}\n";
  return out;
}

}  // namespace baton::bench
