#include "launch/serve/report.h"

#include <cstdio>

#include "launch/cli/command.h"
#include "launch/cli/terminal.h"
#include "runtime/base/log.h"

namespace baton {
namespace {

LogLevel level_of(const std::string& name) {
  if (name == "debug") return LogLevel::debug;
  if (name == "warning") return LogLevel::warning;
  if (name == "error") return LogLevel::error;
  return LogLevel::info;
}

}  // namespace

int exit_status(const Error& error) {
  switch (error.code) {
    case ErrorCode::bad_model:
    case ErrorCode::not_found:
    case ErrorCode::unsupported: return cli::kBadModel;
    case ErrorCode::unavailable: return cli::kUnavailable;
    case ErrorCode::internal: return cli::kInternal;
    default: return cli::kUsage;
  }
}

int report(const Error& error) {
  std::fprintf(stderr, "baton serve: %s\n", error.text.c_str());
  return exit_status(error);
}

void open_log(const ServeOptions& options, const std::string& name) {
  LogOptions log;
  log.level = level_of(options.log_level);
  log.json = options.log_json;
  log.colour = cli::may_colour(stderr);
  log.name = name;
  log_open(log);
}

}  // namespace baton
