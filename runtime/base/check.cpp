#include "runtime/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace baton {

void check_failed(const char* file, int line, const char* expression,
                  const char* message) noexcept {
  std::fprintf(stderr, "%s:%d: CHECK(%s) failed%s%s\n", file, line, expression, message ? ": " : "",
               message ? message : "");
  std::fflush(stderr);
  std::abort();
}

}  // namespace baton
