#include "runtime/model/jinja_operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace baton::jinja {
namespace {

const char* spelled(Operator op) {
  constexpr const char* kSpelled[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSpelled[static_cast<int>(op)];
}

Value no_such(Run& run, Operator op, const Value& a, const Value& b) {
  for (const Value* value : {&a, &b}) {
    if (const auto* undefined = std::get_if<Undefined>(value)) return run.fail(undefined->why);
  }
  return run.fail(fmt::format("'{}' does not work between a {} and a {}", spelled(op), type_name(a),
                              type_name(b)));
}

Value overflow(Run& run) {
  return run.fail("an integer beyond 64 bits");
}

Value integer_power(Run& run, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  std::int64_t result = 1;
  // Beyond 64 factors only -1, 0 and 1 stay within 64 bits, and they repeat with period 2.
  if (exponent > 64 && base >= -1 && base <= 1) exponent = 2 + exponent % 2;
  for (std::int64_t i = 0; i < exponent; ++i) {
    if (__builtin_mul_overflow(result, base, &result)) return overflow(run);
  }
  return result;
}

Value integers(Run& run, Operator op, std::int64_t a, std::int64_t b) {
  std::int64_t result = 0;
  bool overflows = false;
  if (op == Operator::add) {
    overflows = __builtin_add_overflow(a, b, &result);
  } else if (op == Operator::subtract) {
    overflows = __builtin_sub_overflow(a, b, &result);
  } else if (op == Operator::multiply) {
    overflows = __builtin_mul_overflow(a, b, &result);
  } else if (op == Operator::power) {
    return integer_power(run, a, b);
  } else if (b == 0) {
    return run.fail("division by zero");
  } else if (op == Operator::divide) {
    return static_cast<double>(a) / static_cast<double>(b);
  } else if (b == -1) {  // the one division that can overflow
    if (op == Operator::modulo) return std::int64_t{0};
    overflows = __builtin_sub_overflow(std::int64_t{0}, a, &result);
  } else {
    const std::int64_t rest = a % b;
    const bool adjust = rest != 0 && (rest < 0) != (b < 0);  // Python rounds down
    result = op == Operator::modulo ? rest + (adjust ? b : 0) : a / b - (adjust ? 1 : 0);
  }
  return overflows ? overflow(run) : Value(result);
}

Value reals(Run& run, Operator op, double a, double b) {
  if (op == Operator::add) return a + b;
  if (op == Operator::subtract) return a - b;
  if (op == Operator::multiply) return a * b;
  if (op == Operator::power) return std::pow(a, b);
  if (b == 0) return run.fail("division by zero");
  if (op == Operator::divide) return a / b;
  if (op == Operator::floor_divide) return std::floor(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  return rest;
}

Value repeated(Run& run, const Value& value, std::int64_t times) {
  times = std::max<std::int64_t>(times, 0);
  std::uint64_t bytes = 0;
  if (__builtin_mul_overflow(extent_of(value).weight, static_cast<std::uint64_t>(times), &bytes)) {
    bytes = std::numeric_limits<std::uint64_t>::max();
  }
  if (!run.charge_bytes(bytes)) return Undefined{};
  if (const Text* text = as_text(value)) {
    Text out;
    for (std::int64_t i = 0; i < times && out.size() <= run.limits().text_bytes_max; ++i) {
      out.append(*text);
    }
    return run.text(std::move(out));
  }
  const List& list = *as_list(value);
  std::vector<Value> items;
  for (std::int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return run.checked(make_list(std::move(items), list.is_tuple));
}

bool repeats(const Value& value) {
  return as_text(value) != nullptr || as_list(value) != nullptr;
}

Value joined(Run& run, const List& a, const List& b) {
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  if (!run.charge(items.size() / 16)) return Undefined{};
  return run.checked(make_list(std::move(items), a.is_tuple));
}

// A bound of a slice as Python clips it into [low, high].
std::int64_t clipped(std::int64_t bound, std::int64_t count, std::int64_t low, std::int64_t high) {
  if (bound < 0) bound += count;
  return std::clamp(bound, low, high);
}

bool bound_of(Run& run, const Value* value, std::optional<std::int64_t>& out) {
  if (value == nullptr || is_none(*value)) return true;
  out = as_integer(*value);
  if (!out) run.fail(fmt::format("a slice wants integers, not a {}", type_name(*value)));
  return out.has_value();
}

// The indices that a slice takes of `count` elements.
std::vector<std::size_t> indices(std::int64_t count, std::optional<std::int64_t> start,
                                 std::optional<std::int64_t> stop, std::int64_t stride) {
  std::vector<std::size_t> out;
  // Beyond the count one stride is like another.
  stride = std::clamp(stride, -count - 1, count + 1);
  if (stride > 0) {
    const std::int64_t first = clipped(start.value_or(0), count, 0, count);
    const std::int64_t end = clipped(stop.value_or(count), count, 0, count);
    for (std::int64_t i = first; i < end; i += stride) out.push_back(static_cast<std::size_t>(i));
  } else {
    const std::int64_t first = start ? clipped(*start, count, -1, count - 1) : count - 1;
    const std::int64_t end = stop ? clipped(*stop, count, -1, count - 1) : -1;
    for (std::int64_t i = first; i > end; i += stride) out.push_back(static_cast<std::size_t>(i));
  }
  return out;
}

Value slice_text(Run& run, const Text& text, std::optional<std::int64_t> start,
                 std::optional<std::int64_t> stop, std::int64_t stride) {
  if (!run.charge_bytes(text.size())) return Undefined{};
  const std::vector<std::size_t> offsets = character_offsets(text.view());
  const auto count = static_cast<std::int64_t>(offsets.size()) - 1;
  if (stride == 1) {
    const auto first = static_cast<std::size_t>(clipped(start.value_or(0), count, 0, count));
    const auto end = static_cast<std::size_t>(clipped(stop.value_or(count), count, 0, count));
    if (first >= end) return make_text(Text());
    return run.text(text.slice(offsets[first], offsets[end] - offsets[first]));
  }
  Text out;
  if (!run.charge(text.size())) return Undefined{};
  for (const std::size_t i : indices(count, start, stop, stride)) {
    out.append(text.slice(offsets[i], offsets[i + 1] - offsets[i]));
  }
  return run.text(std::move(out));
}

}  // namespace

Value compute(Run& run, Operator op, const Value& a, const Value& b) {
  if (const auto x = as_integer(a), y = as_integer(b); x && y) return integers(run, op, *x, *y);
  if (const auto x = as_number(a), y = as_number(b); x && y) return reals(run, op, *x, *y);
  if (op == Operator::add) {
    const Text *s = as_text(a), *t = as_text(b);
    if (s != nullptr && t != nullptr) {
      Text out = *s;
      out.append(*t);
      return run.text(std::move(out));
    }
    const List *p = as_list(a), *q = as_list(b);
    if (p != nullptr && q != nullptr && p->is_tuple == q->is_tuple) return joined(run, *p, *q);
  }
  if (op == Operator::multiply) {
    if (const auto times = as_integer(b); times && repeats(a)) return repeated(run, a, *times);
    if (const auto times = as_integer(a); times && repeats(b)) return repeated(run, b, *times);
  }
  return no_such(run, op, a, b);
}

bool holds(Run& run, Operator op, const Value& a, const Value& b) {
  if (op == Operator::in) return run.contains(b, a);
  if (op == Operator::not_in) return !run.contains(b, a);
  if (!run.charge_bytes(std::min(extent_of(a).weight, extent_of(b).weight))) return false;
  if (op == Operator::equal) return equal(a, b);
  if (op == Operator::not_equal) return !equal(a, b);
  for (const Value* value : {&a, &b}) {
    if (const auto real = std::get_if<double>(value); real != nullptr && std::isnan(*real)) {
      return false;
    }
  }
  const std::optional<int> order = compare(a, b);
  if (!order) {
    no_such(run, op, a, b);
    return false;
  }
  if (op == Operator::less) return *order < 0;
  if (op == Operator::less_equal) return *order <= 0;
  return op == Operator::greater ? *order > 0 : *order >= 0;
}

Value negated(Run& run, const Value& value) {
  if (const auto whole = as_integer(value)) {
    return integers(run, Operator::subtract, 0, *whole);
  }
  if (const auto* real = std::get_if<double>(&value)) return -*real;
  return no_such(run, Operator::subtract, std::int64_t{0}, value);
}

Value slice(Run& run, const Value& value, const Value* start, const Value* stop,
            const Value* stride) {
  if (const auto* undefined = std::get_if<Undefined>(&value)) return run.fail(undefined->why);
  std::optional<std::int64_t> from, to, by;
  if (!bound_of(run, start, from) || !bound_of(run, stop, to) || !bound_of(run, stride, by)) {
    return Undefined{};
  }
  if (by == 0) return run.fail("a slice with a stride of zero");
  if (const Text* text = as_text(value)) return slice_text(run, *text, from, to, by.value_or(1));
  const List* list = as_list(value);
  if (list == nullptr) return Undefined{fmt::format("a {} has no slices", type_name(value))};
  if (!run.charge(list->items.size() / 16)) return Undefined{};
  std::vector<Value> items;
  const auto count = static_cast<std::int64_t>(list->items.size());
  for (const std::size_t i : indices(count, from, to, by.value_or(1))) {
    items.push_back(list->items[i]);
  }
  return make_list(std::move(items), list->is_tuple);
}

}  // namespace baton::jinja
