#pragma once

// CHECK is on in every build: a broken invariant stops the process with file, line and values,
// because a runtime that goes on with a broken ledger hands out wrong tokens.

namespace baton {

// Prints the location, the expression and a message to stderr, then aborts. Thread-safe.
[[noreturn]] void check_failed(const char* file, int line, const char* expression,
                               const char* message) noexcept;

}  // namespace baton

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::baton::check_failed(__FILE__, __LINE__, #condition, nullptr); \
  } while (false)

#define CHECK_MSG(condition, message)                                   \
  do {                                                                  \
    if (!(condition)) [[unlikely]]                                      \
      ::baton::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
