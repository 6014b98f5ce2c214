#pragma once

#include <string>
#include <utility>
#include <variant>

#include "runtime/base/check.h"

namespace baton {

// What a failure means to whoever must react; the numbers travel in messages, so only append.
enum class ErrorCode : int {
  ok = 0,
  invalid_argument = 1,   // the request is wrong; repeating it fails again
  not_found = 2,          // the named thing does not exist
  bad_frame = 3,          // bytes from outside that are not a message of ours
  bad_model = 4,          // a model file that cannot be used
  unsupported = 5,        // well-formed, but not something this build does
  context_too_long = 6,   // prompt (and new tokens) exceed the context
  busy = 7,               // a limit is reached; try again after retry_after_ms
  unavailable = 8,        // no worker that could do it; try again later
  deadline_exceeded = 9,  // its time ran out
  cancelled = 10,         // the caller, or its disconnect, ended it
  worker_lost = 11,       // the ranks that held it died and the retries are used up
  corrupt = 12,           // a digest does not match
  stale = 13,             // an old epoch, incarnation or generation
  conflict = 14,          // same id or key, other content
  internal = 15,          // a defect of Baton
};

// The name of a code as it appears in messages ("busy"). Unknown values give "unknown".
const char* error_name(ErrorCode code) noexcept;

// A failure that was expected: a code for programs, a sentence for people.
struct Error {
  ErrorCode code = ErrorCode::internal;
  std::string text;
};

// A value or an Error. Accessing the wrong one is a CHECK failure.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(runtime/explicit)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & {
    CHECK_MSG(ok(), ok() ? "" : error_text());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK_MSG(ok(), ok() ? "" : error_text());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK_MSG(ok(), ok() ? "" : error_text());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return std::get<1>(state_);
  }

 private:
  const char* error_text() const { return std::get<1>(state_).text.c_str(); }

  std::variant<T, Error> state_;
};

// Success without a value, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}  // NOLINT

  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const& {
    CHECK(!ok_);
    return error_;
  }

 private:
  Error error_{ErrorCode::ok, {}};
  bool ok_ = true;
};

}  // namespace baton
