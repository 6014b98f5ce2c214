#pragma once

#include <string>
#include <string_view>

namespace baton {

enum class LogLevel { debug, info, warning, error };

// Where a line of the log goes and how it looks. Set once by main before any thread starts.
struct LogOptions {
  LogLevel level = LogLevel::info;
  bool json = false;           // one JSON object a line
  bool colour = false;         // false under NO_COLOR or when stderr is not a terminal
  std::string name = "baton";  // "rank 2 decode": in front of each line
};

// thread-safe
void log_open(const LogOptions& options);
// thread-safe; `text` never holds prompts, outputs or secrets at info and above.
void log_line(LogLevel level, std::string_view text);
// thread-safe
bool log_wants(LogLevel level) noexcept;

inline void log_debug(std::string_view text) {
  log_line(LogLevel::debug, text);
}
inline void log_info(std::string_view text) {
  log_line(LogLevel::info, text);
}
inline void log_warning(std::string_view text) {
  log_line(LogLevel::warning, text);
}
inline void log_error(std::string_view text) {
  log_line(LogLevel::error, text);
}

}  // namespace baton
