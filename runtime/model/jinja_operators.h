#pragma once

#include "runtime/model/jinja_ast.h"
#include "runtime/model/jinja_run.h"

namespace baton::jinja {

// a op b for the operators of arithmetic, as Python computes them; a failure for other types.
Value compute(Run& run, Operator op, const Value& a, const Value& b);
// a op b for comparisons and `in`
bool holds(Run& run, Operator op, const Value& a, const Value& b);
Value negated(Run& run, const Value& value);
// value[start:stop:stride]; null for what is left out
Value slice(Run& run, const Value& value, const Value* start, const Value* stop,
            const Value* stride);

}  // namespace baton::jinja
