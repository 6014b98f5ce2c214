#pragma once

#include <cstdint>
#include <string>

#include "runtime/base/result.h"

namespace baton {

// Names one process of one boot of one host, for ever: a pid alone is used again.
struct ProcessName {
  std::string host;  // boot id: two containers or hosts never share one by chance
  int64_t pid = 0;
  uint64_t started_at = 0;  // clock ticks since boot
};

ProcessName own_process_name();
std::string process_name_text(const ProcessName& name);
Result<ProcessName> parse_process_name(const std::string& text);

// True only if the process is of this host and certainly over: no write of it can come any more.
// False when it lives (stopped or not), or cannot be seen from here. thread-safe
bool process_is_over(const ProcessName& name);

}  // namespace baton
