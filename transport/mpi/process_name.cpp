#include "transport/mpi/process_name.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>

namespace baton {
namespace {

struct ProcessStat {
  char state = '?';
  uint64_t started_at = 0;
};

// None if there is no such process.
std::optional<ProcessStat> read_stat(int64_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  // The command, in parentheses, may hold anything; what follows the last ')' is regular.
  const size_t end = text.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(end + 1));
  ProcessStat stat;
  fields >> stat.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> stat.started_at;
  if (!fields) return std::nullopt;
  return stat;
}

// Which processes this one can see: the kernel's boot, and the namespace of its process ids.
std::string own_host() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char space[64];
  const ssize_t size = readlink("/proc/self/ns/pid", space, sizeof space);
  return boot + "/" + std::string(space, size > 0 ? static_cast<size_t>(size) : 0);
}

}  // namespace

ProcessName own_process_name() {
  ProcessName name;
  name.host = own_host();
  name.pid = getpid();
  if (const auto stat = read_stat(name.pid)) name.started_at = stat->started_at;
  return name;
}

std::string process_name_text(const ProcessName& name) {
  return name.host + " " + std::to_string(name.pid) + " " + std::to_string(name.started_at);
}

Result<ProcessName> parse_process_name(const std::string& text) {
  ProcessName name;
  std::istringstream fields(text);
  fields >> name.host >> name.pid >> name.started_at;
  if (!fields || name.pid <= 0) {
    return Error{ErrorCode::bad_frame, "\"" + text + "\" does not name a process"};
  }
  return name;
}

bool process_is_over(const ProcessName& name) {
  static const std::string here = own_host();
  if (name.host != here || name.started_at == 0) return false;
  const auto stat = read_stat(name.pid);
  // A zombie's memory is gone; only its parent has not asked yet.
  return !stat || stat->started_at != name.started_at || stat->state == 'Z' || stat->state == 'X';
}

}  // namespace baton
