#include "transport/shm/process_state.h"

#include <fstream>
#include <iterator>
#include <string>

namespace baton {

bool process_is_stopped(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string stat((std::istreambuf_iterator<char>(file)), {});
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  return name_end != std::string::npos && stat.size() > name_end + 2 && stat[name_end + 2] == 'T';
}

}  // namespace baton
