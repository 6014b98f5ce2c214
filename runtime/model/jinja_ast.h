#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/model/jinja_value.h"

namespace baton::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// The arguments of a call, filter or test.
struct Arguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
};

// One step behind an operand: .name, [index], [a:b:c], (args), |filter(args), is test(args).
struct Step {
  enum class Kind { attribute, index, slice, call, filter, test };
  Kind kind = Kind::attribute;
  int line = 0;
  std::string name;  // of an attribute, filter or test
  bool negated = false;
  ExprPtr index;  // also the start of a slice; may be null there, as the next two
  ExprPtr stop, stride;
  Arguments arguments;
};

enum class Operator {
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power,
  equal,
  not_equal,
  less,
  less_equal,
  greater,
  greater_equal,
  in,
  not_in,
};

// An expression. Chains of one precedence (a + b - c, a and b and c) are one node with several
// children, evaluated left to right, so that their length costs no depth.
struct Expr {
  enum class Kind {
    literal,     // value
    name,        // text
    list,        // children
    tuple,       // children
    dict,        // children: key, value, key, value ...
    arithmetic,  // children, one operator between each two
    compare,     // the same
    concat,      // children
    all_of,      // children: and
    any_of,      // children: or
    negate,      // child 0: not
    minus,       // child 0
    plus,        // child 0
    condition,   // children: test, then, else (null if absent)
    steps,       // child 0, then steps in order
  };
  Kind kind = Kind::literal;
  int line = 0;
  std::string text;
  Value value;
  std::vector<ExprPtr> children;
  std::vector<Operator> operators;
  std::vector<Step> steps;
};

struct Statement;
using Body = std::vector<Statement>;

struct Macro;

// What an assignment writes: a name, ns.member, or names to unpack into.
struct Target {
  std::vector<std::string> names;
  std::string member;   // of namespace names[0]; empty otherwise
  bool unpack = false;  // a tuple of names
};

struct Statement {
  enum class Kind {
    data,       // text
    output,     // exprs[0]
    branch,     // exprs[i] guards bodies[i]; one more body is the else
    loop,       // target, exprs[0]: iterable, exprs[1]: filter or null; bodies: loop, else
    assign,     // target, exprs[0]
    capture,    // target, bodies[0]; exprs[0] (may be null) filters the text
    macro,      // macro
    stop_loop,  // break
    next_item,  // continue
    group,      // bodies[0], printed as it is
  };
  Kind kind = Kind::data;
  int line = 0;
  Value text;
  Target target;
  std::vector<ExprPtr> exprs;
  std::vector<Body> bodies;
  std::unique_ptr<Macro> macro;
};

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // one per parameter; null where there is none
  Body body;
};

}  // namespace baton::jinja
