#include "launch/serve/instance_flags.h"

#include <utility>

#include "launch/serve/cluster_file.h"

namespace baton {
namespace {

constexpr int64_t kDegreeMax = 64;

Error usage_error(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

Result<void> check_degree(const std::string& name, int64_t value, int64_t min) {
  if (value >= min && value <= kDegreeMax) return {};
  return usage_error(name + " is " + std::to_string(value) + "; expected " + std::to_string(min) +
                     " to " + std::to_string(kDegreeMax));
}

}  // namespace

void InstanceFlags::enroll(cli::Command& command) {
  command.option("--cluster", cluster_file_,
                 "A TOML file that lists the instances, in place of the options for them");
  command.option("--tensor-parallel-size", tensor_parallel_,
                 "Ranks that share each layer of an instance", "tp-size");
  command.option("--pipeline-parallel-size", pipeline_parallel_,
                 "Stages that the layers of an instance are divided into", "pp-size");
  for (auto& [name, side] : {std::pair<std::string, Side*>{"prefill", &prefill_},
                             std::pair<std::string, Side*>{"decode", &decode_}}) {
    const std::string only = " of " + name + " instances; ";
    command.option("--" + name + "-tp", side->tensor_parallel,
                   "--tensor-parallel-size" + only + "0 = the same");
    command.option("--" + name + "-pp", side->pipeline_parallel,
                   "--pipeline-parallel-size" + only + "0 = the same");
    command.option("--" + name + "-block-size", side->block_size,
                   "--block-size" + only + "0 = the same");
    command.option("--" + name + "-kv-dtype", side->kv_dtype,
                   "--kv-cache-dtype" + only + "auto = the same");
  }
  command.option("--kv-layer-groups", kv_layer_groups_,
                 "Hand KV over in so many groups of layers; at most as many as the model has");
  command.flag("--no-kv-digests", no_kv_digests_,
               "Trust the bytes of a hand-off: no digest is computed before or after their way");
}

Result<void> InstanceFlags::read(const cli::Command& command, const InstanceSpec& common,
                                 ServeOptions& options) const {
  if (auto degree = check_degree("--tensor-parallel-size", tensor_parallel_, 1); !degree.ok()) {
    return degree;
  }
  if (auto degree = check_degree("--pipeline-parallel-size", pipeline_parallel_, 1); !degree.ok()) {
    return degree;
  }
  InstanceDefaults& d = options.defaults;
  d.prefill = common;
  d.prefill.tensor_parallel = static_cast<uint32_t>(tensor_parallel_);
  d.prefill.pipeline_parallel = static_cast<uint32_t>(pipeline_parallel_);
  d.decode = d.prefill;
  d.prefill.role = Role::prefill;
  d.decode.role = Role::decode;
  if (auto side = read_side("prefill", prefill_, d.prefill); !side.ok()) return side;
  if (auto side = read_side("decode", decode_, d.decode); !side.ok()) return side;
  if (kv_layer_groups_ < 1 || kv_layer_groups_ > kLayerGroupsMax) {
    return usage_error("--kv-layer-groups is " + std::to_string(kv_layer_groups_) +
                       "; expected 1 to " + std::to_string(kLayerGroupsMax));
  }
  d.handoff = {static_cast<uint32_t>(kv_layer_groups_), !no_kv_digests_};
  if (!cluster_file_.empty()) {
    if (auto file = read_file(command, options); !file.ok()) return file;
  }
  options.limits.kv_layer_groups = d.handoff.layer_groups;
  options.limits.kv_digests = d.handoff.digests;
  return {};
}

Result<void> InstanceFlags::read_file(const cli::Command& command, ServeOptions& options) const {
  for (const char* name :
       {"prefill-ranks", "decode-ranks", "tensor-parallel-size", "pipeline-parallel-size",
        "prefill-tp", "decode-tp", "prefill-pp", "decode-pp", "prefill-block-size",
        "decode-block-size", "prefill-kv-dtype", "decode-kv-dtype"}) {
    if (!command.given(name)) continue;
    return usage_error(std::string("--cluster and --") + name +
                       " both say what the instances are; give one of them");
  }
  Result<ClusterFile> file = read_cluster_file(cluster_file_, options.defaults);
  if (!file.ok()) return file.error();
  options.instances = std::move(file->instances);
  options.defaults.handoff = file->handoff;
  return {};
}

Result<void> InstanceFlags::read_side(const char* side_name, const Side& side,
                                      InstanceSpec& spec) const {
  const std::string prefix = std::string("--") + side_name;
  if (auto degree = check_degree(prefix + "-tp", side.tensor_parallel, 0); !degree.ok()) {
    return degree;
  }
  if (auto degree = check_degree(prefix + "-pp", side.pipeline_parallel, 0); !degree.ok()) {
    return degree;
  }
  if (side.tensor_parallel > 0) spec.tensor_parallel = static_cast<uint32_t>(side.tensor_parallel);
  if (side.pipeline_parallel > 0) {
    spec.pipeline_parallel = static_cast<uint32_t>(side.pipeline_parallel);
  }
  if (spec.ranks() > kDegreeMax) {
    return usage_error("an instance of " + std::to_string(spec.ranks()) +
                       " ranks: expected tensor-parallel x pipeline-parallel of at most " +
                       std::to_string(kDegreeMax));
  }
  if (side.block_size != 0) {
    if (side.block_size != 16 && side.block_size != 32 && side.block_size != 64) {
      return usage_error(prefix + "-block-size is " + std::to_string(side.block_size) +
                         "; expected 16, 32 or 64, or 0 for that of --block-size");
    }
    spec.block_tokens = static_cast<uint32_t>(side.block_size);
  }
  if (side.kv_dtype != "auto" && !parse_kv_dtype(side.kv_dtype, spec.kv_dtype)) {
    return usage_error(prefix + "-kv-dtype is '" + side.kv_dtype +
                       "'; expected auto, bf16, f16 or f32");
  }
  return {};
}

}  // namespace baton
