#include "launch/serve/topology.h"

#include <sched.h>
#include <unistd.h>

namespace baton {

std::vector<Role> Topology::roles(uint32_t rank) const {
  if (alone()) return {Role::prefill, Role::decode};
  if (control(rank)) return {};
  return {rank <= prefill_ranks ? Role::prefill : Role::decode};
}

std::string Topology::role_text(uint32_t rank) const {
  if (alone()) return "all";
  if (control(rank)) return "control";
  return role_name(roles(rank).front());
}

Result<Topology> divide_ranks(uint32_t ranks, int64_t prefill_ranks, int64_t decode_ranks) {
  Topology t;
  t.ranks = ranks;
  if (ranks == 1) return t;
  const int64_t engines = int64_t{ranks} - 1;
  if (engines < 2) {
    return Error{ErrorCode::invalid_argument,
                 "mpirun started 2 ranks; expected 1 (all in one process) or at least 3: control, "
                 "prefill, decode"};
  }
  int64_t prefill = prefill_ranks;
  int64_t decode = decode_ranks;
  if (prefill == 0) prefill = decode == 0 ? engines / 2 : engines - decode;
  if (decode == 0) decode = engines - prefill;
  if (prefill < 1 || decode < 1 || prefill + decode != engines) {
    return Error{ErrorCode::invalid_argument,
                 "--prefill-ranks " + std::to_string(prefill) + " and --decode-ranks " +
                     std::to_string(decode) + " need " + std::to_string(1 + prefill + decode) +
                     " ranks with the control rank, each at least 1; mpirun started " +
                     std::to_string(ranks)};
  }
  t.prefill_ranks = static_cast<uint32_t>(prefill);
  t.decode_ranks = static_cast<uint32_t>(decode);
  return t;
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
