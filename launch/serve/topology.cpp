#include "launch/serve/topology.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/base/check.h"

namespace baton {

namespace {

Error refused(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

// Gives out ranks in order; the topology is complete then.
Topology placed(uint32_t ranks, std::vector<InstanceSpec> instances) {
  uint32_t next = 1;
  for (InstanceSpec& instance : instances) {
    instance.first_rank = next;
    next += instance.ranks();
  }
  return {ranks, std::move(instances)};
}

uint64_t ranks_of(const std::vector<InstanceSpec>& instances) {
  uint64_t sum = 0;
  for (const InstanceSpec& instance : instances) sum += instance.ranks();
  return sum;
}

std::string each_of(const InstanceSpec& spec) {
  return std::to_string(spec.ranks()) + (spec.ranks() == 1 ? " rank" : " ranks");
}

Result<Topology> one_process(const ServeOptions& options) {
  if (!options.instances.empty()) {
    return refused(
        "--cluster describes several ranks, but one process was started; expected mpirun -np " +
        std::to_string(1 + ranks_of(options.instances)) + " baton serve ...");
  }
  const InstanceSpec& prefill = options.defaults.prefill;
  const InstanceSpec& decode = options.defaults.decode;
  if (prefill.ranks() > 1 || decode.ranks() > 1) {
    return refused("instances of " + each_of(prefill) + " (prefill) and " + each_of(decode) +
                   " (decode) need a process for each rank, but one was started; expected mpirun "
                   "-np " +
                   std::to_string(1 + prefill.ranks() + decode.ranks()) + " baton serve ...");
  }
  Topology topology{1, {prefill, decode}};
  for (InstanceSpec& instance : topology.instances) instance.first_rank = 0;
  return topology;
}

// How many prefill instances: as asked, or so that both sides get about half of the ranks. -1 where
// no number of instances takes exactly `engines` ranks.
int64_t prefill_instances(int64_t engines, int64_t prefill_ranks, int64_t decode_ranks,
                          int64_t prefill_each, int64_t decode_each) {
  if (prefill_ranks == 0 && decode_ranks > 0) prefill_ranks = engines - decode_ranks;
  int64_t best = -1;
  for (int64_t count = 1; count * prefill_each < engines; ++count) {
    const int64_t taken = count * prefill_each;
    if ((engines - taken) % decode_each != 0) continue;
    if (prefill_ranks > 0 && taken != prefill_ranks) continue;
    if (decode_ranks > 0 && engines - taken != decode_ranks) continue;
    const auto off_half = [&](int64_t n) { return std::abs(2 * n * prefill_each - engines); };
    if (best < 0 || off_half(count) < off_half(best)) best = count;
  }
  return best;
}

}  // namespace

std::string InstanceSpec::ranks_text() const {
  if (ranks() == 1) return "rank " + std::to_string(first_rank);
  return "ranks " + std::to_string(first_rank) + "-" + std::to_string(first_rank + ranks() - 1);
}

std::string InstanceSpec::degrees_text() const {
  return "tp " + std::to_string(tensor_parallel) + " x pp " + std::to_string(pipeline_parallel);
}

std::vector<InstanceSpec> Topology::led_by(uint32_t rank) const {
  std::vector<InstanceSpec> led;
  for (const InstanceSpec& instance : instances) {
    if (instance.first_rank == rank) led.push_back(instance);
  }
  return led;
}

const InstanceSpec* Topology::instance_of(uint32_t rank) const {
  for (const InstanceSpec& instance : instances) {
    if (instance.holds(rank)) return &instance;
  }
  return nullptr;
}

size_t Topology::count(Role role) const {
  return static_cast<size_t>(std::count_if(instances.begin(), instances.end(),
                                           [role](const auto& i) { return i.role == role; }));
}

std::string Topology::role_text(uint32_t rank) const {
  if (alone()) return "all";
  if (control(rank)) return "control";
  const InstanceSpec* instance = instance_of(rank);
  CHECK(instance != nullptr);
  if (instance->ranks() == 1) return role_name(instance->role);
  return std::string(role_name(instance->role)) + " part " +
         std::to_string(rank - instance->first_rank + 1) + " of " +
         std::to_string(instance->ranks());
}

Result<Topology> divide_ranks(uint32_t ranks, const ServeOptions& options) {
  if (ranks == 1) return one_process(options);
  const int64_t engines = int64_t{ranks} - 1;
  if (!options.instances.empty()) {
    const uint64_t needed = 1 + ranks_of(options.instances);
    if (needed == ranks) return placed(ranks, options.instances);
    return refused("the cluster file has instances of " + std::to_string(needed - 1) +
                   " ranks, which with the control rank need mpirun -np " + std::to_string(needed) +
                   "; mpirun started " + std::to_string(ranks));
  }
  const InstanceSpec& prefill = options.defaults.prefill;
  const InstanceSpec& decode = options.defaults.decode;
  if (engines < 2) {
    return refused(
        "mpirun started 2 ranks; expected 1 (all in one process) or at least 3: control, prefill, "
        "decode");
  }
  const int64_t count = prefill_instances(engines, options.prefill_ranks, options.decode_ranks,
                                          prefill.ranks(), decode.ranks());
  if (count < 0) {
    const auto asked = [](const char* flag, int64_t value) {
      return value == 0 ? std::string() : std::string(flag) + " " + std::to_string(value) + ", ";
    };
    return refused(asked("--prefill-ranks", options.prefill_ranks) +
                   asked("--decode-ranks", options.decode_ranks) + "prefill instances of " +
                   each_of(prefill) + " and decode instances of " + each_of(decode) +
                   " do not add up to the " + std::to_string(engines) +
                   " engine ranks: mpirun started " + std::to_string(ranks) +
                   ", one of them the control rank; expected at least one instance of each and no "
                   "rank left over");
  }
  std::vector<InstanceSpec> instances(static_cast<size_t>(count), prefill);
  const auto decodes = static_cast<size_t>((engines - count * prefill.ranks()) / decode.ranks());
  instances.insert(instances.end(), decodes, decode);
  return placed(ranks, std::move(instances));
}

Result<void> check_hosts(const Topology& topology, const std::vector<std::string>& hosts) {
  for (const InstanceSpec& instance : topology.instances) {
    for (uint32_t i = 1; i < instance.ranks(); ++i) {
      const std::string& first = hosts[instance.first_rank];
      const std::string& other = hosts[instance.first_rank + i];
      if (other == first) continue;
      return refused("the " + std::string(role_name(instance.role)) + " instance of " +
                     instance.ranks_text() + " would span the hosts " + first + " and " + other +
                     ", but its ranks share memory; expected all of them on one host: place them "
                     "so (mpirun --map-by, --host) or lower its degrees");
    }
  }
  return {};
}

std::vector<uint32_t> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<uint32_t> cores;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    for (uint32_t core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  if (cores.empty()) cores.push_back(0);
  return cores;
}

std::string cores_text(const std::vector<uint32_t>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t j = i;
    while (j + 1 < cores.size() && cores[j + 1] == cores[j] + 1) ++j;
    if (!text.empty()) text += ",";
    text += std::to_string(cores[i]);
    if (j > i) text += "-" + std::to_string(cores[j]);
    i = j + 1;
  }
  return text;
}

std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return name;
}

uint64_t machine_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGE_SIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0;
}

}  // namespace baton
