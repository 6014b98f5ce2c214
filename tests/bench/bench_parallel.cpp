// What it costs to divide an instance among ranks, in one run on one model file:
//   bench_parallel MODEL [--cores N] [--activations int8|f32] [--pin]
// N cores (2) as N threads of one rank, as N ranks of one thread, and as N stages of one thread;
// each against the first. Then what a meeting of N members costs by itself. Ranks are threads of
// this process here: they share memory just as processes do.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/bench/engine_load.h"
#include "tests/bench/timing.h"
#include "tests/unit/engine/followers.h"

namespace baton::bench {
namespace {

constexpr double kSeconds = 1.0;  // per line
constexpr int kSpins = 1 << 12;   // as ranks that have a core for each thread
constexpr uint32_t kContext = 128;

struct Arguments : EngineWords {
  uint32_t cores = 2;
};

Arguments parse(int argc, char** argv) {
  Arguments out;
  static_cast<EngineWords&>(out) =
      parse_words(argc, argv, "[--cores N]",
                  [&](const std::string& word, const std::function<std::string()>& value) {
                    if (word != "--cores") return false;
                    out.cores = static_cast<uint32_t>(std::max(1, std::atoi(value().c_str())));
                    return true;
                  });
  return out;
}

const std::vector<Load> kLoads = {prefill_load(256), decode_load(1, kContext),
                                  decode_load(8, kContext), decode_load(32, kContext)};

// Tokens per second of each load.
std::vector<double> speeds_of(const Arguments& arguments, const ModelFile& file, const PartOf& of,
                              int threads) {
  TeamOptions team;
  team.threads = threads;
  team.pin = arguments.pin;
  team.spin = true;
  CpuEngineOptions engine;
  engine.activations = arguments.mode;
  engine.kv_dtype = default_kv_dtype(arguments.mode);
  engine.kv_blocks = blocks_needed(kLoads, engine.block_tokens);
  const auto compute = std::make_shared<Compute>(team);
  const auto load_weights = [&](const PartOf& part) {
    return must(LlamaWeights::load(file, *compute, {}, part));
  };
  std::unique_ptr<Followers> followers;
  if (of.ranks() > 1) {
    followers = std::make_unique<Followers>(engine, of, team, kSpins, load_weights);
  }
  const auto driver = must(EngineDriver::create(load_weights(of), compute, engine));
  driver->engine().warm_up();
  std::vector<double> speeds;
  for (const Load& load : kLoads) {
    const std::vector<BatchRow> rows = rows_of(*driver, load);
    const double seconds = measure(5, kSeconds, [&] { driver->step(rows); }).median_s;
    speeds.push_back(load.tokens() / seconds);
  }
  return speeds;
}

void meetings(uint32_t members) {
  for (const int spins : {kSpins, 0}) {
    ShmGroupOptions options;
    options.size = members;
    options.spins = spins;
    options.window_bytes = 4096;
    auto first = must(ShmGroup::create(options));
    std::vector<std::thread> others;
    for (options.index = 1; options.index < members; ++options.index) {
      others.emplace_back([&, options] {
        auto group = must(ShmGroup::join(first->name(), options));
        if (!group->gather(60 * kSecond).ok()) fail("the members did not meet");
        while (group->wait().ok()) {
        }
      });
    }
    if (!first->gather(60 * kSecond).ok()) fail("the members did not meet");
    constexpr int kMeetings = 1000;
    const Timing timing = measure(5, kSeconds, [&] {
      for (int i = 0; i < kMeetings; ++i) (void)first->meet(Circle::all).ok();
    });
    std::printf("a meeting of %u members, %s: %.2f us\n", members,
                spins > 0 ? "spinning" : "blocking", timing.median_s * 1e6 / kMeetings);
    first->abort("measured");
    for (std::thread& other : others) other.join();
  }
}

int run(int argc, char** argv) {
  const Arguments arguments = parse(argc, argv);
  const ModelFile file = must(ModelFile::open(arguments.model));
  const uint32_t n = arguments.cores;
  const std::vector<double> threads = speeds_of(arguments, file, {}, static_cast<int>(n));
  const std::vector<double> ranks = speeds_of(arguments, file, {n, 1, 0}, 1);
  const std::vector<double> stages = speeds_of(arguments, file, {1, n, 0}, 1);
  std::printf("%-24s %18s %18s %18s\n", "tokens/s",
              ("1 rank, " + std::to_string(n) + " threads").c_str(),
              ("tp " + std::to_string(n) + ", 1 thread").c_str(),
              ("pp " + std::to_string(n) + ", 1 thread").c_str());
  for (std::size_t i = 0; i < threads.size(); ++i) {
    std::printf("%-24s %18.0f %10.0f (%.2f) %11.0f (%.2f)\n", kLoads[i].name.c_str(), threads[i],
                ranks[i], ranks[i] / threads[i], stages[i], stages[i] / threads[i]);
  }
  meetings(n);
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) {
  return baton::bench::run(argc, argv);
}
