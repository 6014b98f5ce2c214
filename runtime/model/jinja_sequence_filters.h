#pragma once

#include "runtime/model/jinja_run.h"

namespace baton::jinja {

// The filters that work on a list, dict or string as a sequence; see jinja_filters.h.
Value join(Run& run, const Value& value, const CallArguments& args);
Value first(Run& run, const Value& value, const CallArguments& args);
Value last(Run& run, const Value& value, const CallArguments& args);
Value reverse(Run& run, const Value& value, const CallArguments& args);
Value sort(Run& run, const Value& value, const CallArguments& args);
Value sort_dict(Run& run, const Value& value, const CallArguments& args);
Value unique(Run& run, const Value& value, const CallArguments& args);
Value minimum(Run& run, const Value& value, const CallArguments& args);
Value maximum(Run& run, const Value& value, const CallArguments& args);
Value sum(Run& run, const Value& value, const CallArguments& args);
Value map(Run& run, const Value& value, const CallArguments& args);
Value select(Run& run, const Value& value, const CallArguments& args);
Value reject(Run& run, const Value& value, const CallArguments& args);
Value select_by_attribute(Run& run, const Value& value, const CallArguments& args);
Value reject_by_attribute(Run& run, const Value& value, const CallArguments& args);

// An optional argument as a condition.
bool flag_or(const Value* value, bool fallback);

}  // namespace baton::jinja
