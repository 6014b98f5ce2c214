#include "runtime/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <string>

#include "runtime/base/json.h"

namespace baton {
namespace {

spdlog::level::level_enum spd_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug: return spdlog::level::debug;
    case LogLevel::info: return spdlog::level::info;
    case LogLevel::warning: return spdlog::level::warn;
    case LogLevel::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

std::atomic<bool> json_lines{false};
std::atomic<int> level_min{static_cast<int>(LogLevel::info)};

}  // namespace

void log_open(const LogOptions& options) {
  const auto mode = options.colour ? spdlog::color_mode::always : spdlog::color_mode::never;
  auto sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode);
  auto logger = std::make_shared<spdlog::logger>(options.name, sink);
  logger->set_pattern(options.json
                          ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","name":"%n",%v})"
                          : "%H:%M:%S.%e %^%-7l%$ %n: %v");
  logger->set_level(spd_level(options.level));
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(logger);
  json_lines = options.json;
  level_min = static_cast<int>(options.level);
}

void log_line(LogLevel level, std::string_view text) {
  if (!log_wants(level)) return;
  if (json_lines) {
    std::string member = "\"text\":";
    append_json_string(member, text);
    spdlog::log(spd_level(level), "{}", member);
  } else {
    spdlog::log(spd_level(level), "{}", text);
  }
}

bool log_wants(LogLevel level) noexcept {
  return static_cast<int>(level) >= level_min;
}

}  // namespace baton
