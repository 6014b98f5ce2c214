// Tokens per second of the CPU engine on a model file, beside what the machine could do:
//   bench_engine MODEL [--activations int8|f32] [--threads N]... [--pin] [--context N]
//                [--only TEXT]
// Prefill of 512 tokens; decode steps of 1, 8 and 32 sequences at a context of 128 (or N).

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/bench/probe.h"
#include "tests/bench/timing.h"
#include "tests/unit/engine/engine_driver.h"

namespace baton::bench {
namespace {

constexpr double kSeconds = 1.0;  // per line

struct Arguments {
  std::string model;
  ActivationMode mode = ActivationMode::int8;
  std::vector<int> threads;
  bool pin = false;
  uint32_t context = 128;
  std::string only;  // part of the names of the lines to measure
};

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "bench_engine: %s\n", text.c_str());
  std::exit(1);
}

Arguments parse(int argc, char** argv) {
  Arguments out;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const auto value = [&]() -> std::string {
      if (++i == argc) fail(argument + " needs a value");
      return argv[i];
    };
    if (argument == "--activations") {
      out.mode = value() == "f32" ? ActivationMode::f32 : ActivationMode::int8;
    } else if (argument == "--threads") {
      out.threads.push_back(std::max(1, std::atoi(value().c_str())));
    } else if (argument == "--pin") {
      out.pin = true;
    } else if (argument == "--context") {
      out.context = static_cast<uint32_t>(std::max(1, std::atoi(value().c_str())));
    } else if (argument == "--only") {
      out.only = value();
    } else {
      out.model = argument;
    }
  }
  if (out.model.empty()) {
    fail(
        "usage: bench_engine MODEL [--activations int8|f32] [--threads N]... [--pin] [--context "
        "N]");
  }
  if (out.threads.empty()) out.threads = {1, 2};
  return out;
}

template <class T>
T must(Result<T> result) {
  if (!result) fail(result.error().text);
  return std::move(result).value();
}

struct Load {
  const char* name;
  uint32_t rows;
  uint32_t tokens;  // of each row
  uint32_t position;
};

std::vector<BatchRow> rows_of(EngineDriver& driver, const Load& load) {
  driver.reset_blocks();
  std::vector<BatchRow> rows(load.rows);
  for (uint32_t i = 0; i < load.rows; ++i) {
    rows[i].key = i;
    for (uint32_t t = 0; t < load.tokens; ++t) {
      rows[i].tokens.push_back(static_cast<TokenId>((i * 131 + t * 17) % 512));
    }
    rows[i].position = load.position;
    rows[i].blocks = driver.take_blocks(load.position + load.tokens);
    rows[i].sampling.top_logprobs = 0;
  }
  return rows;
}

void bench(const Arguments& arguments, int threads) {
  TeamOptions options;
  options.threads = threads;
  options.pin = arguments.pin;
  const auto compute = std::make_shared<Compute>(options);
  const ModelFile file = must(ModelFile::open(arguments.model));
  const auto weights = must(LlamaWeights::load(file, *compute));
  Limits limits;
  compute->run([&](Team& team) { limits = probe(team, isa_choice().isa, true); });
  CpuEngineOptions engine;
  engine.activations = arguments.mode;
  engine.kv_dtype = default_kv_dtype(arguments.mode);
  engine.kv_blocks = 32 * (arguments.context / engine.block_tokens + 2);
  const auto driver = must(EngineDriver::create(weights, compute, engine));
  driver->engine().warm_up();
  std::printf("%s, %s, %d thread%s%s: memory %.0f GB/s, int8 %.0f GOP/s, f32 %.0f GFLOP/s\n",
              isa_name(isa_choice().isa), activation_mode_name(arguments.mode), threads,
              threads > 1 ? "s" : "", arguments.pin ? ", pinned" : "", limits.read_gbs,
              limits.int8_gops, limits.fma_gflops);
  const double peak =
      1e9 * (arguments.mode == ActivationMode::int8 ? limits.int8_gops : limits.fma_gflops);
  for (const Load& load :
       {Load{"prefill 512", 1, 512, 0}, Load{"decode B=1", 1, 1, arguments.context},
        Load{"decode B=8", 8, 1, arguments.context},
        Load{"decode B=32", 32, 1, arguments.context}}) {
    if (std::string(load.name).find(arguments.only) == std::string::npos) continue;
    const std::vector<BatchRow> rows = rows_of(*driver, load);
    const Timing timing = measure(5, kSeconds, [&] { driver->step(rows); });
    const double tokens = load.rows * load.tokens;
    const ModelConfig& config = weights->config();
    const double embedding = static_cast<double>(config.vocab) * config.hidden;
    const double parameters = static_cast<double>(config.parameters);  // tied: counted once
    const double linear = config.tied ? parameters - embedding : parameters - 2 * embedding;
    const double operations = 2 * (linear * tokens + embedding * load.rows);
    std::printf(
        "  %-12s %9.1f tok/s  (best %9.1f; %8.3f ms)  %5.1f GB/s of weights  %4.1f %% of "
        "peak\n",
        load.name, tokens / timing.median_s, tokens / timing.best_s, 1e3 * timing.median_s,
        static_cast<double>(weights->bytes()) / timing.median_s / 1e9,
        100 * operations / timing.median_s / peak);
  }
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  const baton::bench::Arguments arguments = baton::bench::parse(argc, argv);
  for (const int threads : arguments.threads) baton::bench::bench(arguments, threads);
  return 0;
}
