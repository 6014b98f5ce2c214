#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/utf8.h"
#include "runtime/model/jinja_filters.h"
#include "runtime/model/jinja_operators.h"

namespace baton::jinja {
namespace {

using Test = bool (*)(Run&, const Value&);
using Relation = bool (*)(Run&, const Value&, const Value&);

template <class... Kinds>
bool is_one_of(Run&, const Value& value) {
  return (std::holds_alternative<Kinds>(value) || ...);
}

bool is_defined(Run&, const Value& value) {
  return !is_undefined(value);
}
bool is_true(Run&, const Value& value) {
  const bool* flag = std::get_if<bool>(&value);
  return flag != nullptr && *flag;
}
bool is_false(Run&, const Value& value) {
  const bool* flag = std::get_if<bool>(&value);
  return flag != nullptr && !*flag;
}
bool is_iterable(Run&, const Value& value) {
  return as_list(value) != nullptr || as_dict(value) != nullptr || as_text(value) != nullptr ||
         is_undefined(value);
}
bool is_callable(Run&, const Value& value) {
  return std::holds_alternative<const Macro*>(value) || std::holds_alternative<Builtin>(value) ||
         std::holds_alternative<std::shared_ptr<const Method>>(value);
}

std::int64_t whole(Run& run, const Value& value) {
  const std::optional<std::int64_t> number = as_integer(value);
  if (!number) run.fail(fmt::format("the test wants an integer, not a {}", type_name(value)));
  return number.value_or(0);
}

bool is_odd(Run& run, const Value& value) {
  return whole(run, value) % 2 != 0;
}
bool is_even(Run& run, const Value& value) {
  return whole(run, value) % 2 == 0;
}
bool is_lower(Run& run, const Value& value) {
  const Text text = run.str(value);
  return lower(text).bytes() == text.bytes() && upper(text).bytes() != text.bytes();
}
bool is_upper(Run& run, const Value& value) {
  const Text text = run.str(value);
  return upper(text).bytes() == text.bytes() && lower(text).bytes() != text.bytes();
}

bool divides(Run& run, const Value& value, const Value& by) {
  const std::int64_t divisor = whole(run, by);
  if (divisor == 0) run.fail("division by zero");
  return divisor != 0 && (divisor == -1 || whole(run, value) % divisor == 0);
}

bool is_same(Run&, const Value& a, const Value& b) {
  if (a.index() != b.index()) return false;
  const bool scalar = is_none(a) || std::holds_alternative<bool>(a) ||
                      std::holds_alternative<std::int64_t>(a) || as_text(a) != nullptr;
  if (scalar) return equal(a, b);
  if (as_list(a) != nullptr) return as_list(a) == as_list(b);
  if (as_dict(a) != nullptr) return as_dict(a) == as_dict(b);
  return equal(a, b);
}

template <Operator kOp>
bool related(Run& run, const Value& a, const Value& b) {
  return holds(run, kOp, a, b);
}

struct TestEntry {
  std::string_view name;
  Test test;
};

using TextKind = std::shared_ptr<const Text>;
using ListKind = std::shared_ptr<const List>;
using DictKind = std::shared_ptr<const Dict>;

constexpr TestEntry kTests[] = {
    {"boolean", is_one_of<bool>},
    {"callable", is_callable},
    {"defined", is_defined},
    {"even", is_even},
    {"false", is_false},
    {"float", is_one_of<double>},
    {"integer", is_one_of<std::int64_t>},
    {"iterable", is_iterable},
    {"lower", is_lower},
    {"mapping", is_one_of<DictKind>},
    {"none", is_one_of<None>},
    {"number", is_one_of<bool, std::int64_t, double>},
    {"odd", is_odd},
    {"sequence", is_one_of<TextKind, ListKind, DictKind, Undefined>},
    {"string", is_one_of<TextKind>},
    {"true", is_true},
    {"undefined", is_one_of<Undefined>},
    {"upper", is_upper},
};

struct RelationEntry {
  std::string_view name;
  Relation relation;
};

bool is_in(Run& run, const Value& element, const Value& container) {
  return run.contains(container, element);
}

constexpr RelationEntry kRelations[] = {
    {"divisibleby", divides},
    {"eq", related<Operator::equal>},
    {"equalto", related<Operator::equal>},
    {"==", related<Operator::equal>},
    {"ne", related<Operator::not_equal>},
    {"!=", related<Operator::not_equal>},
    {"lt", related<Operator::less>},
    {"lessthan", related<Operator::less>},
    {"<", related<Operator::less>},
    {"le", related<Operator::less_equal>},
    {"<=", related<Operator::less_equal>},
    {"gt", related<Operator::greater>},
    {"greaterthan", related<Operator::greater>},
    {">", related<Operator::greater>},
    {"ge", related<Operator::greater_equal>},
    {">=", related<Operator::greater_equal>},
    {"in", is_in},
    {"sameas", is_same},
};

template <class Table>
auto find_named(const Table& table, std::string_view name) {
  return std::find_if(std::begin(table), std::end(table),
                      [&](const auto& entry) { return entry.name == name; });
}

}  // namespace

bool is_test(std::string_view name) {
  return find_named(kTests, name) != std::end(kTests) ||
         find_named(kRelations, name) != std::end(kRelations);
}

bool apply_test(Run& run, std::string_view name, const Value& value, const CallArguments& args) {
  if (run.failed()) return false;
  if (const auto* plain = find_named(kTests, name); plain != std::end(kTests)) {
    bind(run, name, args, {});
    return !run.failed() && plain->test(run, value);
  }
  const auto given = bind(run, name, args, {"other"}, 1);
  return !run.failed() && find_named(kRelations, name)->relation(run, value, *given[0]);
}

}  // namespace baton::jinja
