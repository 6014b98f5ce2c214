#include <cstdio>
#include <string>

#include "launch/cli/client_options.h"
#include "runtime/base/limits.h"
#include "runtime/layout/plan_text.h"
#include "runtime/model/inspect.h"
#include "runtime/model/model_config.h"

namespace baton::cli {
namespace {

struct Asked {
  std::string source = "tp=1";
  std::string target = "tp=1";
  std::string model;
  int64_t layers = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t tokens = 1024;
  int64_t layer_groups = 1;
  int64_t piece_bytes = static_cast<int64_t>(Limits{}.piece_bytes_max);
  bool json = false;
};

Error usage(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

Result<uint32_t> number_of(const std::string& key, const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 6 &&
                      text.find_first_not_of("0123456789") == std::string::npos;
  if (!digits || std::stoul(text) == 0) {
    return usage(key + "=" + text + ": expected a number from 1 to 999999");
  }
  return static_cast<uint32_t>(std::stoul(text));
}

Result<void> set_part(PlacementOptions& side, const std::string& key, const std::string& value) {
  if (key == "dtype") {
    for (const KvDtype dtype : {KvDtype::f32, KvDtype::bf16, KvDtype::f16}) {
      if (value != dtype_name(dtype)) continue;
      side.dtype = dtype;
      return {};
    }
    return usage("dtype=" + value + ": expected f32, bf16 or f16");
  }
  uint32_t* number = key == "tp"      ? &side.tensor_parallel
                     : key == "pp"    ? &side.pipeline_parallel
                     : key == "block" ? &side.block_tokens
                                      : nullptr;
  if (!number) return usage("'" + key + "' is not one of tp, pp, block and dtype");
  const Result<uint32_t> parsed = number_of(key, value);
  if (!parsed.ok()) return parsed.error();
  *number = *parsed;
  return {};
}

// "tp=4,pp=1,block=16,dtype=bf16"; what is not named stays as it is.
Result<Placement> placement_of(const std::string& flag, const std::string& text,
                               PlacementOptions side) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t equals = part.find('=');
    if (equals == std::string::npos) {
      return usage(flag + ": '" + part +
                   "' has no '='; expected e.g. tp=4,pp=1,block=16,dtype=bf16");
    }
    const Result<void> taken = set_part(side, part.substr(0, equals), part.substr(equals + 1));
    if (!taken.ok()) return usage(flag + ": " + taken.error().text);
    at = end + 1;
  }
  Result<Placement> placement = make_placement(side);
  if (!placement.ok()) return usage(flag + ": " + placement.error().text);
  return placement;
}

Result<PlacementOptions> model_of(const Asked& asked) {
  PlacementOptions model;
  if (asked.model.empty()) {
    if (asked.layers <= 0 || asked.heads <= 0 || asked.kv_heads <= 0 || asked.head_dim <= 0) {
      return usage(
          "no model given; expected --model FILE.gguf, or --layers, --heads, --kv-heads "
          "and --head-dim");
    }
    model.shape = {static_cast<uint32_t>(asked.layers), static_cast<uint32_t>(asked.kv_heads),
                   static_cast<uint32_t>(asked.head_dim)};
    model.query_heads = static_cast<uint32_t>(asked.heads);
    return model;
  }
  install_model_fault_handler();
  const Result<ModelFile> file = ModelFile::open(asked.model);
  if (!file.ok()) return file.error();
  const Result<ModelConfig> config = read_model_config(*file);
  if (!config.ok()) return config.error();
  model.shape = {config->layers, config->kv_heads, config->head_dim};
  model.query_heads = config->heads;
  return model;
}

Result<RoutedPlan> plan_of(const Asked& asked) {
  const Result<PlacementOptions> model = model_of(asked);
  if (!model.ok()) return model.error();
  const Result<Placement> source = placement_of("--source", asked.source, *model);
  if (!source.ok()) return source.error();
  const Result<Placement> target = placement_of("--target", asked.target, *model);
  if (!target.ok()) return target.error();
  if (asked.tokens < 0 || asked.tokens > 10'000'000 || asked.piece_bytes < 1) {
    return usage("--tokens and --piece-bytes must be positive numbers");
  }
  if (asked.layer_groups < 1 || asked.layer_groups > model->shape.layers) {
    return usage("--layer-groups is " + std::to_string(asked.layer_groups) +
                 "; expected 1 to the model's " + std::to_string(model->shape.layers) + " layers");
  }
  Result<Plan> plan = plan_reshard(*source, *target);
  if (!plan.ok()) return plan.error();
  return route_plan(std::move(*plan), {static_cast<uint32_t>(asked.layer_groups),
                                       static_cast<uint64_t>(asked.piece_bytes), true});
}

}  // namespace

int plan_main(int argc, char** argv) {
  Command command("plan",
                  "Show how KV moves from one layout to another: which rank sends which "
                  "heads and layers to whom");
  Asked asked;
  command.option("--source", asked.source,
                 "Layout of the prefill side, e.g. tp=4,pp=1,block=16,dtype=bf16");
  command.option("--target", asked.target, "Layout of the decode side");
  command.option("--model,-m", asked.model, "A GGUF file");
  command.option("--layers", asked.layers, "Instead of --model: layers");
  command.option("--heads", asked.heads, "Instead of --model: query heads");
  command.option("--kv-heads", asked.kv_heads, "Instead of --model: key-value heads");
  command.option("--head-dim", asked.head_dim, "Instead of --model: size of a head");
  command.option("--tokens", asked.tokens, "Tokens of the transfer that is counted");
  command.option("--layer-groups", asked.layer_groups, "Send in so many groups of layers");
  command.option("--piece-bytes", asked.piece_bytes, "The most bytes of one message");
  command.flag("--json", asked.json, "One JSON object, for programs");
  if (const auto status = command.parse(argc, argv)) return *status;

  const Result<RoutedPlan> routed = plan_of(asked);
  if (!routed.ok()) {
    std::fprintf(stderr, "baton plan: %s\n", routed.error().text.c_str());
    return routed.error().code == ErrorCode::invalid_argument ? kUsage : kBadModel;
  }
  const auto tokens = static_cast<uint32_t>(asked.tokens);
  if (asked.json) {
    std::printf("%s\n", write_json(plan_json(*routed, tokens)).c_str());
  } else {
    std::printf("%s", plan_report(*routed, tokens).c_str());
  }
  return kOk;
}

}  // namespace baton::cli
