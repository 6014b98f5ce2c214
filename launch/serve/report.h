#pragma once

#include <chrono>
#include <string>

#include "launch/serve/serve_options.h"
#include "runtime/base/result.h"

namespace baton {

// Since when a process has been starting.
class StartClock {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

// The exit status that belongs to a failure of `baton serve`; report() prints it as well.
int exit_status(const Error& error);
int report(const Error& error);

// Opens the log as the options ask, under this name.
void open_log(const ServeOptions& options, const std::string& name);

}  // namespace baton
