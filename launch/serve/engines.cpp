#include "launch/serve/engines.h"

#include <algorithm>

#include "runtime/engine/numerics.h"

namespace baton {
namespace {

constexpr uint64_t kDefaultKvBytes = uint64_t{1} << 30;

// What "auto" gives an engine for its KV cache: a gibibyte, but no more than all its slots can fill
// nor than an eighth of the machine shared among the engines on it.
uint64_t kv_bytes_for(const OpenedModel& model, const ServeOptions& options, uint64_t engines) {
  if (options.kv_cache_bytes > 0) return options.kv_cache_bytes;
  const ModelConfig& c = model.config;
  const uint64_t per_token = uint64_t{c.layers} * 2 * c.kv_width() * dtype_bytes(options.kv_dtype);
  const uint64_t useful = per_token * (uint64_t{model.context_max} + options.block_tokens) *
                          options.limits.decode_slots;
  const uint64_t share = machine_memory() / 8 / std::max<uint64_t>(1, engines);
  const uint64_t one_context = per_token * (uint64_t{model.context_max} + options.block_tokens);
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

CorePlan plan_cores(uint32_t wanted_threads, uint32_t index, uint32_t engine_ranks,
                    const std::vector<uint32_t>& cores) {
  CorePlan plan;
  const auto count = static_cast<uint32_t>(cores.size());
  const uint32_t ranks = std::max(1u, engine_ranks);
  plan.threads = wanted_threads ? wanted_threads : std::max(1u, count / ranks);
  plan.first_core = index * plan.threads;
  // One more core than the teams need, for the loops: a spinning team would starve them.
  plan.pin = plan.threads * ranks < count;
  plan.spin = plan.threads * ranks <= count;
  plan.text = std::to_string(plan.threads) + (plan.threads == 1 ? " thread" : " threads");
  if (plan.pin) {
    const std::vector<uint32_t> own(cores.begin() + plan.first_core,
                                    cores.begin() + plan.first_core + plan.threads);
    plan.text += " on cores " + cores_text(own);
  } else {
    plan.text += ", cores " + cores_text(cores) + " shared";
  }
  return plan;
}

Result<Engines> start_engines(const OpenedModel& model, const ServeOptions& options,
                              const CorePlan& plan, size_t count, uint32_t engine_ranks_on_host,
                              const CpuEngine::Post& post, const LlamaWeights::Progress& progress) {
  Engines engines;
  TeamOptions team;
  team.threads = static_cast<int>(plan.threads);
  team.pin = plan.pin;
  team.spin = plan.spin;
  team.first_core = static_cast<int>(plan.first_core);
  engines.compute = std::make_shared<Compute>(team);
  auto weights = LlamaWeights::load(model.file, *engines.compute, progress);
  if (!weights.ok()) return weights.error();

  CpuEngineOptions engine;
  engine.activations = options.exact_activations ? ActivationMode::f32 : ActivationMode::int8;
  engine.kv_dtype = options.kv_dtype;
  engine.block_tokens = options.block_tokens;
  engine.kv_cache_bytes = kv_bytes_for(model, options, uint64_t{engine_ranks_on_host} * count);
  engine.step_us_min = options.step_us_min;
  engine.step_tokens_max = static_cast<uint32_t>(options.limits.batched_tokens_max);
  engine.context_max = model.context_max;
  engine.loader = std::make_shared<WeightsLoader>((*weights)->identity(), (*weights)->part().of);
  engine.weight_sets_max = options.limits.weight_sets_max;
  for (size_t i = 0; i < count; ++i) {
    auto made = CpuEngine::create(*weights, engines.compute, engine, post);
    if (!made.ok()) return made.error();
    (*made)->warm_up();
    engines.by_role.push_back(std::move(*made));
  }
  return engines;
}

}  // namespace baton
