#include "launch/serve/banner.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

#include "kernels/isa.h"
#include "launch/cli/terminal.h"
#include "launch/serve/devices.h"
#include "launch/version.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

std::string slots_of(const WorkerStatus& worker) {
  return worker.role == Role::decode ? std::to_string(worker.capacity.slots) : "-";
}

// The instance that a worker is the actor of.
const InstanceSpec* instance_with(const Topology& topology, const WorkerStatus& worker) {
  for (const InstanceSpec& instance : topology.instances) {
    if (instance.first_rank == worker.rank && instance.role == worker.role) return &instance;
  }
  return nullptr;
}

void write_ready_file(const std::string& path, const std::string& endpoint) {
  const std::string draft = path + ".new";
  {
    std::ofstream file(draft);
    file << "endpoint=" << endpoint << "\npid=" << getpid() << "\n";
  }
  if (std::rename(draft.c_str(), path.c_str()) != 0) {
    log_error("cannot write --ready-file " + path);
  }
}

}  // namespace

std::string banner_text(const OpenedModel& model, const ServeOptions& options,
                        const Topology& topology, const ClusterReply& cluster,
                        const std::string& endpoint, double seconds) {
  const ModelConfig& c = model.config;
  std::string text = std::string("Baton ") + kBatonVersion + "\n";
  text += "model    " + c.name + ", " + c.architecture + ", " + cli::count_text(c.parameters) +
          " parameters, " + c.weight_types + "\n";
  text += "numbers  activations " + std::string(options.exact_activations ? "f32" : "int8") +
          ", context " + cli::count_text(model.context_max) + ", kernels " +
          isa_name(isa_choice().isa) + "\n";
  if (const std::string devices = devices_text(); !devices.empty()) {
    text += "devices  " + devices + "\n";
  }
  text += "\n";

  cli::Table table({"ranks", "role", "shape", "host", "compute of a rank", "KV cache", "KV blocks",
                    "tokens that fit", "slots"});
  if (!topology.alone()) table.add({"0", "control", "-", host_name(), "-", "-", "-", "-", "-"});
  for (const WorkerStatus& w : cluster.workers) {
    const InstanceSpec* instance = instance_with(topology, w);
    if (instance == nullptr) continue;
    const uint64_t tokens = uint64_t{w.capacity.blocks} * instance->block_tokens;
    std::string ranks = std::to_string(w.rank);
    if (instance->ranks() > 1) ranks += "-" + std::to_string(w.rank + instance->ranks() - 1);
    table.add({ranks, role_name(w.role), instance->degrees_text(), w.host, w.cores,
               std::string(dtype_name(instance->kv_dtype)) + ", blocks of " +
                   std::to_string(instance->block_tokens),
               cli::count_text(w.capacity.blocks), cli::count_text(tokens), slots_of(w)});
  }
  text += table.text(false);
  char ready[160];
  std::snprintf(ready, sizeof ready, "\nclients  %s\nready in %.1f s\n", endpoint.c_str(), seconds);
  return text + ready;
}

void announce_ready(const OpenedModel& model, const ServeOptions& options, const Topology& topology,
                    const ClusterReply& cluster, const std::string& endpoint, double seconds) {
  std::printf("%s", banner_text(model, options, topology, cluster, endpoint, seconds).c_str());
  std::fflush(stdout);
  if (!options.ready_file.empty()) write_ready_file(options.ready_file, endpoint);
}

}  // namespace baton
