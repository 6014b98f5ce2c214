#include "launch/serve/engines.h"

#include <algorithm>

#include "runtime/engine/numerics.h"

namespace baton {
namespace {

constexpr uint64_t kDefaultKvBytes = uint64_t{1} << 30;

// What "auto" gives a rank for its KV cache: a gibibyte, but no more than all its slots can fill
// nor than an eighth of the machine shared among the engines on it.
uint64_t kv_bytes_for(const OpenedModel& model, const ServeOptions& options,
                      const InstanceSpec& instance, uint64_t engines) {
  if (instance.kv_cache_bytes > 0) return instance.kv_cache_bytes;
  const Placement placement = placement_of(model.config, part_of(instance, instance.first_rank),
                                           instance.kv_dtype, instance.block_tokens);
  const uint64_t one_context =
      placement.block_bytes_max() * (uint64_t{model.context_max} / instance.block_tokens + 1);
  const uint64_t useful = one_context * options.limits.decode_slots;
  const uint64_t share = machine_memory() / 8 / std::max<uint64_t>(1, engines);
  return std::max(one_context, std::min({kDefaultKvBytes, useful, share}));
}

}  // namespace

Result<OpenedModel> open_model(const ServeOptions& options) {
  Result<ModelFile> file = ModelFile::open(options.model_path);
  if (!file.ok()) return file.error();
  Result<ModelConfig> config = read_model_config(*file);
  if (!config.ok()) return config.error();
  const uint32_t trained = config->context;
  if (options.context_max > trained) {
    return Error{ErrorCode::invalid_argument,
                 "--max-model-len is " + std::to_string(options.context_max) +
                     ", but the model was trained for " + std::to_string(trained) +
                     " positions; expected at most that, or 0 for all of them"};
  }
  if (options.limits.kv_layer_groups > config->layers) {
    return Error{ErrorCode::invalid_argument,
                 "kv-layer-groups is " + std::to_string(options.limits.kv_layer_groups) +
                     ", but the model has " + std::to_string(config->layers) +
                     " layers; expected at most that many groups"};
  }
  const uint32_t context = options.context_max ? options.context_max : trained;
  return OpenedModel{std::move(*file), std::move(*config), context};
}

Result<std::shared_ptr<const ModelText>> load_text(const OpenedModel& model) {
  Result<Tokenizer> tokenizer = Tokenizer::load(model.file);
  if (!tokenizer.ok()) return tokenizer.error();
  std::optional<ChatTemplate> chat;
  Result<ChatTemplate> loaded = ChatTemplate::load(model.file, *tokenizer);
  if (loaded.ok()) {
    chat = std::move(*loaded);
  } else if (loaded.error().code != ErrorCode::not_found) {
    return loaded.error();
  }
  std::vector<TokenId> eos = tokenizer->stop_ids();
  return std::shared_ptr<const ModelText>(
      std::make_shared<ModelText>(ModelText{std::move(*tokenizer), std::move(chat), eos}));
}

CorePlan plan_cores(const std::vector<uint32_t>& wanted, uint32_t index,
                    const std::vector<uint32_t>& cores) {
  CorePlan plan;
  const auto count = static_cast<uint32_t>(cores.size());
  const auto ranks = std::max(uint32_t{1}, static_cast<uint32_t>(wanted.size()));
  uint32_t total = 0;
  for (uint32_t i = 0; i < wanted.size(); ++i) {
    const uint32_t threads = wanted[i] > 0 ? wanted[i] : std::max(1u, count / ranks);
    if (i == index) {
      plan.threads = threads;
      plan.first_core = total;
    }
    total += threads;
  }
  // Loops have no core of their own: they sleep mostly, and take one for a moment when they wake.
  // Without a place of its own a compute thread wakes beside the one that woke it, on its core.
  plan.pin = total <= count;
  plan.text = std::to_string(plan.threads) + (plan.threads == 1 ? " thread" : " threads");
  if (plan.pin) {
    const std::vector<uint32_t> own(cores.begin() + plan.first_core,
                                    cores.begin() + plan.first_core + plan.threads);
    plan.text += (plan.threads == 1 ? " on core " : " on cores ") + cores_text(own);
  } else {
    plan.text += ", cores " + cores_text(cores) + " shared";
  }
  return plan;
}

CpuEngineOptions engine_options(const OpenedModel& model, const ServeOptions& options,
                                const InstanceSpec& instance, size_t engines_on_host) {
  CpuEngineOptions engine;
  engine.activations = options.exact_activations ? ActivationMode::f32 : ActivationMode::int8;
  engine.kv_dtype = instance.kv_dtype;
  engine.block_tokens = instance.block_tokens;
  engine.kv_cache_bytes = kv_bytes_for(model, options, instance, engines_on_host);
  engine.step_us_min = options.step_us_min;
  engine.step_tokens_max = static_cast<uint32_t>(options.limits.batched_tokens_max);
  engine.context_max = model.context_max;
  engine.weight_sets_max = options.limits.weight_sets_max;
  return engine;
}

Result<Engines> start_engines(const OpenedModel& model, const CorePlan& plan, const PartOf& of,
                              const std::vector<CpuEngineOptions>& wanted,
                              const CpuEngine::Post& post, const LlamaWeights::Progress& progress) {
  Engines engines;
  TeamOptions team;
  team.threads = static_cast<int>(plan.threads);
  team.pin = plan.pin;
  team.spin = plan.pin;
  team.first_core = static_cast<int>(plan.first_core);
  engines.compute = std::make_shared<Compute>(team);
  auto weights = LlamaWeights::load(model.file, *engines.compute, progress, of);
  if (!weights.ok()) return weights.error();
  const auto loader =
      std::make_shared<WeightsLoader>((*weights)->identity(), (*weights)->part().of);
  for (CpuEngineOptions options : wanted) {
    options.loader = loader;
    auto made = CpuEngine::create(*weights, engines.compute, options, post);
    if (!made.ok()) return made.error();
    engines.engines.push_back(std::move(*made));
  }
  return engines;
}

PartOf part_of(const InstanceSpec& instance, uint32_t rank) {
  CHECK(instance.holds(rank));
  return {instance.tensor_parallel, instance.pipeline_parallel, rank - instance.first_rank};
}

}  // namespace baton
