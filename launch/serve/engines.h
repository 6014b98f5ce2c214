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
  bool pin = false;  // each thread to a core of its own; then it may spin in barriers
  uint32_t first_core = 0;
  std::string text;  // for people: "2 threads on cores 0-1"
};
// `wanted`: threads of each engine rank on this host, in order; 0: an equal share of the cores.
// `index`: which of them this is. Threads are pinned, and spin in barriers, only where every thread
// of every rank has a core.
CorePlan plan_cores(const std::vector<uint32_t>& wanted, uint32_t index,
                    const std::vector<uint32_t>& cores);

// What an engine of this shape is made with, the same on all its ranks; `engines_on_host` share the
// machine's memory.
CpuEngineOptions engine_options(const OpenedModel& model, const ServeOptions& options,
                                const InstanceSpec& instance, size_t engines_on_host);

// The engines of one rank, one for each instance that it is part of. They share the weights and
// take turns on the compute team.
struct Engines {
  std::shared_ptr<Compute> compute;
  std::vector<std::unique_ptr<CpuEngine>> engines;  // in the order of `wanted`
};
// `progress` as LlamaWeights::load.
Result<Engines> start_engines(const OpenedModel& model, const CorePlan& plan, const PartOf& of,
                              const std::vector<CpuEngineOptions>& wanted,
                              const CpuEngine::Post& post, const LlamaWeights::Progress& progress);

// The part of an instance that its rank `rank` (of the cluster) computes.
PartOf part_of(const InstanceSpec& instance, uint32_t rank);

}  // namespace baton
