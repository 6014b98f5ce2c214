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
  if (cluster_file_.empty()) return {};
  for (const char* name :
       {"prefill-ranks", "decode-ranks", "tensor-parallel-size", "pipeline-parallel-size",
        "prefill-tp", "decode-tp", "prefill-pp", "decode-pp", "prefill-block-size",
        "decode-block-size", "prefill-kv-dtype", "decode-kv-dtype"}) {
    if (!command.given(name)) continue;
    return usage_error(std::string("--cluster and --") + name +
                       " both say what the instances are; give one of them");
  }
  auto instances = read_cluster_file(cluster_file_, d);
  if (!instances.ok()) return instances.error();
  options.instances = std::move(*instances);
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
