#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/model/jinja_value.h"

namespace baton::jinja {

struct RunLimits {
  std::uint64_t steps_max = 1'000'000;
  int depth_max = 64;                       // macros within macros
  int frames_max = 512;                     // expressions and blocks under evaluation
  std::int64_t range_max = 10'000;          // elements of a range()
  std::size_t text_bytes_max = 16u << 20;   // of the output and of any one text
  std::uint64_t weight_max = 128ull << 20;  // of one value with all it holds
  int value_depth_max = 128;
};

// What the parts of one rendering share: its limits, the steps used, and the first failure. After a
// failure every operation returns at once with an undefined value. One thread.
class Run {
 public:
  explicit Run(const RunLimits& limits) : limits_(limits) {}

  const RunLimits& limits() const { return limits_; }
  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  void set_line(int line) { line_ = line; }
  // Keeps the first failure, with the line of the template.
  Value fail(std::string_view what);

  // Uses steps; false once they are used up (which is a failure) or after any failure.
  bool charge(std::uint64_t steps);
  // The work of touching that many bytes, at 256 a step.
  bool charge_bytes(std::uint64_t bytes) { return charge(bytes / 256); }
  // The work of walking all that a value holds.
  bool charge_weight(const Value& value) { return charge_bytes(extent_of(value).weight); }

  // Values with their cost charged and the limits checked.
  Value text(Text text);
  Value checked(Value value);
  Text str(const Value& value);

  // What a for loop goes over: elements, keys, characters. A failure for what cannot be iterated.
  std::vector<Value> iterate(const Value& value);
  // value[key] and value.name; undefined if it is not there.
  Value item(const Value& value, const Value& key);
  Value attribute(const Value& value, std::string_view name);
  // a.b.0.c, for filters that take an attribute
  Value path(const Value& value, const Value& attribute);
  bool contains(const Value& container, const Value& element);

 private:
  Value character(const Text& text, std::int64_t index);

  const RunLimits& limits_;
  std::uint64_t steps_ = 0;
  int line_ = 0;
  std::string error_;
};

// Evaluated arguments.
struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// Assigns arguments to parameters, as a Python function would. `values[i]` is null for a parameter
// that got none; too many, unknown or missing (of the first `required`) ones are a failure.
std::vector<const Value*> bind(Run& run, std::string_view function, const CallArguments& args,
                               std::initializer_list<std::string_view> parameters,
                               std::size_t required = 0);

}  // namespace baton::jinja
