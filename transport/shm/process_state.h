#pragma once

#include <sys/types.h>

namespace baton {

// True if a signal has stopped that process of this host, so that it does not run at all. False
// when it runs, sleeps or is gone. thread-safe
bool process_is_stopped(pid_t pid);

}  // namespace baton
