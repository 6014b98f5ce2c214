#pragma once

#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/engine/cpu_engine.h"
#include "transport/shm/shm_group.h"

namespace baton {

// The ranks of an instance but the first, each a thread of this process with an engine that
// follows. Outlives the engine that they follow, whose end makes them leave. Owner thread only.
class Followers {
 public:
  using WeightsOf = std::function<std::shared_ptr<const LlamaWeights>(const PartOf&)>;

  // Starts the ranks from 1 on and fills in `first.group` for rank 0, whose engine comes next.
  // `weights` is called on this thread.
  Followers(CpuEngineOptions& first, PartOf of, const TeamOptions& team, int spins,
            const WeightsOf& weights) {
    of.rank = 0;
    ShmGroupOptions options;
    options.size = of.ranks();
    options.parts = of.pipeline_parallel;
    options.spins = spins;
    options.window_bytes = CpuEngine::window_bytes(weights(of)->config(), first, of).value();
    std::shared_ptr<ShmGroup> group = ShmGroup::create(options).value();
    for (of.rank = 1; of.rank < of.ranks(); ++of.rank) {
      options.index = of.rank;
      CpuEngineOptions engine = first;
      auto mine = std::shared_ptr<ShmGroup>(ShmGroup::join(group->name(), options).value());
      engine.group = mine;
      TeamOptions own = team;
      own.first_core = static_cast<int>(of.rank) * team.threads;
      ranks_.emplace_back([mine, engine, own, part = weights(of)] {
        require(mine->gather(kWithin));
        auto made = CpuEngine::create(part, std::make_shared<Compute>(own), engine, [](Mail) {});
        if (!made.ok()) return require(made.error());
        require((*made)->follow());
      });
    }
    require(group->gather(kWithin));
    first.group = std::move(group);
  }
  ~Followers() {
    for (std::thread& rank : ranks_) rank.join();
  }
  Followers(const Followers&) = delete;
  Followers& operator=(const Followers&) = delete;

 private:
  static constexpr Micros kWithin = 60 * kSecond;

  // Not the macro: doctest has one of the same name, and this header is included beside either.
  static void require(const Result<void>& result) {
    if (!result.ok()) check_failed(__FILE__, __LINE__, "a rank works", result.error().text.c_str());
  }

  std::vector<std::thread> ranks_;
};

}  // namespace baton
