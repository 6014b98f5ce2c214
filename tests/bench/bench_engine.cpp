// Tokens per second of the CPU engine on a model file, beside what the machine could do:
//   bench_engine MODEL [--activations int8|f32] [--threads N]... [--pin] [--context N]
//                [--only TEXT]
// Prefill of 512 tokens; decode steps of 1, 8 and 32 sequences at a context of 128 (or N).

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

constexpr double kSeconds = 1.0;  // per line

struct Arguments : EngineWords {
  std::vector<int> threads;
  uint32_t context = 128;
  std::string only;  // part of the names of the lines to measure
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  static_cast<EngineWords&>(out) =
      parse_words(argc, argv, "[--threads N]... [--context N] [--only WORDS]",
                  [&](const std::string& word, const std::function<std::string()>& value) {
                    if (word == "--threads") {
                      out.threads.push_back(std::max(1, std::atoi(value().c_str())));
                    } else if (word == "--context") {
                      out.context = static_cast<uint32_t>(std::max(1, std::atoi(value().c_str())));
                    } else if (word == "--only") {
                      out.only = value();
                    } else {
                      return false;
                    }
                    return true;
                  });
  if (out.threads.empty()) out.threads = {1, 2};
  return out;
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
    const std::vector<BatchRow> rows = rows_of(*driver, load, 0);
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
