#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/gateway/prepare.h"
#include "launch/serve/serve_options.h"
#include "launch/serve/topology.h"
#include "runtime/base/result.h"
#include "runtime/engine/cpu_engine.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_file.h"

namespace baton {

// The model file as every rank opens it before anything is started, so that a bad one ends all.
struct OpenedModel {
  ModelFile file;
  ModelConfig config;
  uint32_t context_max = 0;  // of the server: the model's, or less if asked for
};
Result<OpenedModel> open_model(const ServeOptions& options);

// Tokenizer and chat template, for the gateway. Shared with work on the worker pool.
Result<std::shared_ptr<const ModelText>> load_text(const OpenedModel& model);

// How a rank's share of the machine is used.
struct CorePlan {
  uint32_t threads = 1;
  bool pin = false;
  bool spin = false;
  uint32_t first_core = 0;
  std::string text;  // for people: "2 threads on cores 0-1"
};
// `index` of `engine_ranks` engine ranks on this host. Threads spin in barriers only where every
// thread of every rank has a core, and are pinned only where one is left for the loops.
CorePlan plan_cores(uint32_t wanted_threads, uint32_t index, uint32_t engine_ranks,
                    const std::vector<uint32_t>& cores);

// The engines of one rank, one per role. They share the weights and take turns on the compute team.
struct Engines {
  std::shared_ptr<Compute> compute;
  std::vector<std::unique_ptr<CpuEngine>> by_role;  // in the order of Topology::roles
};
// `progress` as LlamaWeights::load. Ends with a warm-up, so that the first request meets no page
// faults.
Result<Engines> start_engines(const OpenedModel& model, const ServeOptions& options,
                              const CorePlan& plan, size_t count, uint32_t engine_ranks_on_host,
                              const CpuEngine::Post& post, const LlamaWeights::Progress& progress);

}  // namespace baton
