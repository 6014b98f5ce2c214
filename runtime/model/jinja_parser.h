#pragma once

#include <vector>

#include "runtime/base/result.h"
#include "runtime/model/jinja_ast.h"
#include "runtime/model/jinja_lexer.h"

namespace baton::jinja {

constexpr int kNestingMax = 64;  // of blocks and brackets in a template

// The syntax tree of a template. Error bad_model, with the line: a mistake, or a construct, filter
// or test outside the subset.
Result<Body> parse(std::vector<Token> tokens);

}  // namespace baton::jinja
