#pragma once

#include <string_view>

#include "runtime/model/jinja_run.h"

namespace baton::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);

// value | name(arguments). Precondition of both: the name is known. A mistake is a failure of the
// run.
Value apply_filter(Run& run, std::string_view name, const Value& value, const CallArguments& args);
// value is name(arguments)
bool apply_test(Run& run, std::string_view name, const Value& value, const CallArguments& args);

bool has_method(const Value& self, std::string_view name);
Value call_method(Run& run, const Value& self, std::string_view name, const CallArguments& args);

}  // namespace baton::jinja
