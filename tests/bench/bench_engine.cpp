// The CPU engine on a model file, each line beside the limit that binds it:
//   bench_engine MODEL [--activations int8|f32] [--threads N]... [--pin] [--only TEXT] [--quick]
//                [--json]
// Prefill of one prompt and of a packed mix; decode steps of 1 to 64 sequences at three contexts.
// --only TEXT: lines whose names contain it. Bytes and operations are counted from first
// principles: weights once a step, keys and values of the context, two operations per
// multiplication of the linear layers; attention's arithmetic is not counted.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/engine_load.h"
#include "tests/bench/probe.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

struct Arguments : EngineWords {
  std::vector<int> threads;
  bool quick = false;
  bool json = false;
  std::string only;  // part of the names of the lines to measure
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  static_cast<EngineWords&>(out) =
      parse_words(argc, argv, "[--threads N]... [--only TEXT] [--quick] [--json]",
                  [&](const std::string& word, const std::function<std::string()>& value) {
                    if (word == "--threads") {
                      out.threads.push_back(std::max(1, std::atoi(value().c_str())));
                    } else if (word == "--only") {
                      out.only = value();
                    } else if (word == "--quick") {
                      out.quick = true;
                    } else if (word == "--json") {
                      out.json = true;
                    } else {
                      return false;
                    }
                    return true;
                  });
  if (out.threads.empty()) out.threads = {1, 2};
  return out;
}

std::vector<Load> loads(bool quick) {
  if (quick) {
    return {prefill_load(128), prefill_load(512), decode_load(1, 128), decode_load(8, 128),
            decode_load(32, 128)};
  }
  std::vector<Load> out;
  for (uint32_t tokens : {32u, 128u, 512u, 2048u}) out.push_back(prefill_load(tokens));
  Load mixed{"prefill 16 packed, 8 to 248", 0, {}};
  for (uint32_t i = 0; i < 16; ++i) mixed.row_tokens.push_back(8 + 16 * i);
  out.push_back(mixed);
  constexpr uint32_t kCachedTokensMax = 65'536;  // 1.5 GB of this model's cache
  for (uint32_t context : {128u, 1024u, 4096u}) {
    for (uint32_t rows : {1u, 2u, 4u, 8u, 16u, 32u, 64u}) {
      if (rows * context <= kCachedTokensMax) out.push_back(decode_load(rows, context));
    }
  }
  return out;
}

struct Costs {
  double bytes = 0;
  double operations = 0;
};

Costs costs_of(const Load& load, const LlamaWeights& weights, const KvGeometry& geometry) {
  const ModelConfig& config = weights.config();
  const double embedding = static_cast<double>(config.vocab) * config.hidden;
  const double parameters = static_cast<double>(config.parameters);  // tied: counted once
  const double linear = config.tied ? parameters - embedding : parameters - 2 * embedding;
  const double kv_token = static_cast<double>(geometry.block_bytes()) / geometry.block_tokens;
  Costs costs;
  costs.bytes = static_cast<double>(weights.bytes());
  for (uint32_t n : load.row_tokens) costs.bytes += kv_token * (load.position + n);
  costs.operations = 2 * (linear * load.tokens() + embedding * double(load.row_tokens.size()));
  return costs;
}

void print(const Arguments& arguments, const Load& load, const Costs& costs, const Timing& timing,
           const Limits& limits, int threads, bool first) {
  const bool int8 = arguments.mode == ActivationMode::int8;
  const double memory_s = costs.bytes / (limits.read_gbs * 1e9);
  const double compute_s = costs.operations / (1e9 * (int8 ? limits.int8_gops : limits.fma_gflops));
  const char* limit = memory_s > compute_s ? "memory" : int8 ? "int8" : "fma";
  const double fraction = std::max(memory_s, compute_s) / timing.best_s;
  std::string share;
  if (threads == 1) {  // what it would be if nobody else had taken the core
    char text[48];
    std::snprintf(text, sizeof text, "; of processor time %5.1f %%",
                  100 * std::max(memory_s, compute_s) / timing.cpu_s);
    share = text;
  }
  if (arguments.json) {
    std::printf(
        "%s{\"name\":\"%s\",\"tokens\":%u,\"best_s\":%.6g,\"median_s\":%.6g,\"cpu_s\":%.6g,"
        "\"bytes\":%.0f,"
        "\"operations\":%.0f,\"limit\":\"%s\",\"fraction\":%.4f}",
        first ? "" : ",", load.name.c_str(), load.tokens(), timing.best_s, timing.median_s,
        timing.cpu_s, costs.bytes, costs.operations, limit, fraction);
    return;
  }
  std::printf("  %-28s %9.1f tok/s (best %9.1f; %9.3f ms) %6.1f MB %8.2f GOP  %-6s %5.1f %%%s\n",
              load.name.c_str(), load.tokens() / timing.median_s, load.tokens() / timing.best_s,
              1e3 * timing.median_s, costs.bytes / 1e6, costs.operations / 1e9, limit,
              100 * fraction, share.c_str());
}

void print_head(const Arguments& arguments, int threads, const Limits& limits, double ready_s) {
  if (arguments.json) {
    std::printf(
        "%s{\"isa\":\"%s\",\"threads\":%d,\"ready_s\":%.3f,\"limits\":{\"read_gbs\":%.2f,"
        "\"memcpy_gbs\":%.2f,\"int8_gops\":%.1f,\"fma_gflops\":%.1f},\"lines\":[",
        threads == arguments.threads.front() ? "" : ",", isa_name(isa_choice().isa), threads,
        ready_s, limits.read_gbs, limits.memcpy_gbs, limits.int8_gops, limits.fma_gflops);
    return;
  }
  std::printf(
      "%s, %s, %d thread%s%s: memory %.0f GB/s, int8 %.0f GOP/s, f32 %.0f GFLOP/s; ready in %.2f "
      "s\n",
      isa_name(isa_choice().isa), activation_mode_name(arguments.mode), threads,
      threads > 1 ? "s" : "", arguments.pin ? ", pinned" : "", limits.read_gbs, limits.int8_gops,
      limits.fma_gflops, ready_s);
}

void bench(const Arguments& arguments, int threads) {
  TeamOptions options;
  options.threads = threads;
  options.pin = arguments.pin;
  options.spin = true;
  const auto compute = std::make_shared<Compute>(options);
  std::vector<Load> all = loads(arguments.quick);
  std::erase_if(
      all, [&](const Load& load) { return load.name.find(arguments.only) == std::string::npos; });
  if (all.empty()) fail("no line's name contains \"" + arguments.only + "\"");
  CpuEngineOptions engine;
  engine.activations = arguments.mode;
  engine.kv_dtype = default_kv_dtype(arguments.mode);
  engine.kv_blocks = blocks_needed(all, engine.block_tokens);
  const auto start = std::chrono::steady_clock::now();
  const ModelFile file = must(ModelFile::open(arguments.model));
  const auto weights = must(LlamaWeights::load(file, *compute));
  const auto driver = must(EngineDriver::create(weights, compute, engine));
  driver->engine().warm_up();
  const std::chrono::duration<double> ready = std::chrono::steady_clock::now() - start;
  Limits limits;
  compute->run([&](Team& team) { limits = probe(team, isa_choice().isa, true); });
  print_head(arguments, threads, limits, ready.count());
  for (const Load& load : all) {
    const std::vector<BatchRow> rows = rows_of(*driver, load);
    const Timing timing =
        measure(arguments.quick ? 5 : 9, arguments.quick ? 0.3 : 1.0, [&] { driver->step(rows); });
    print(arguments, load, costs_of(load, *weights, driver->engine().geometry()), timing, limits,
          threads, &load == &all.front());
    std::fflush(stdout);
  }
  if (arguments.json) std::printf("]}");
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  const baton::bench::Arguments arguments = baton::bench::parse(argc, argv);
  if (arguments.json) std::printf("[");
  for (const int threads : arguments.threads) baton::bench::bench(arguments, threads);
  if (arguments.json) std::printf("]\n");
  return 0;
}
