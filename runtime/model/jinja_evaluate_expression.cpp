#include <fmt/format.h>

#include <array>
#include <ctime>

#include "runtime/model/jinja_evaluator.h"
#include "runtime/model/jinja_operators.h"

namespace baton::jinja {

Value Evaluator::eval(const Expr& expr) {
  const Frame frame(*this);
  if (!run_.charge(1)) return Undefined{};
  Value value = eval_plain(expr);
  run_.set_line(expr.line);
  return run_.failed() ? Value(Undefined{}) : value;
}

Value Evaluator::eval_plain(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::literal: return expr.value;
    case Expr::Kind::name: return look_up(expr.text);
    case Expr::Kind::list: return run_.checked(make_list(eval_all(expr.children)));
    case Expr::Kind::tuple: return run_.checked(make_list(eval_all(expr.children), true));
    case Expr::Kind::dict: return dict(expr);
    case Expr::Kind::arithmetic: return arithmetic(expr);
    case Expr::Kind::compare: return comparison(expr);
    case Expr::Kind::concat: return concatenation(expr);
    case Expr::Kind::all_of:
    case Expr::Kind::any_of: {
      Value value;
      for (const ExprPtr& child : expr.children) {
        value = eval(*child);
        if (run_.failed() || truthy(value) != (expr.kind == Expr::Kind::all_of)) break;
      }
      return value;
    }
    case Expr::Kind::negate: return !truthy(eval(*expr.children[0]));
    case Expr::Kind::minus: return negated(run_, eval(*expr.children[0]));
    case Expr::Kind::plus: {
      const Value value = eval(*expr.children[0]);
      if (!as_number(value))
        return run_.fail(fmt::format("'+' in front of a {}", type_name(value)));
      return value;
    }
    case Expr::Kind::condition: return condition(expr);
    case Expr::Kind::steps: {
      Value value = eval(*expr.children[0]);
      for (const Step& each : expr.steps) {
        if (!run_.charge(1)) break;
        run_.set_line(each.line);
        value = step(each, std::move(value));
      }
      return value;
    }
  }
  return Undefined{};
}

std::vector<Value> Evaluator::eval_all(const std::vector<ExprPtr>& exprs) {
  std::vector<Value> values;
  for (const ExprPtr& expr : exprs) values.push_back(eval(*expr));
  return values;
}

Value Evaluator::arithmetic(const Expr& expr) {
  Value value = eval(*expr.children[0]);
  for (std::size_t i = 0; i < expr.operators.size() && !run_.failed();) {
    const Text* first = as_text(value);
    if (first == nullptr || expr.operators[i] != Operator::add) {
      const Value right = eval(*expr.children[i + 1]);
      if (run_.failed()) break;
      value = compute(run_, expr.operators[i++], value, right);
      continue;
    }
    // A row of texts is put together in one go, so that it costs no more than its length.
    Text sum = *first;
    Value next;
    bool is_text = true;
    while (is_text && i < expr.operators.size() && expr.operators[i] == Operator::add) {
      next = eval(*expr.children[i + 1]);
      is_text = as_text(next) != nullptr;
      if (is_text) sum.append(*as_text(next));
      i += is_text;
    }
    value = run_.text(std::move(sum));
    if (!is_text && !run_.failed()) value = compute(run_, expr.operators[i++], value, next);
  }
  return value;
}

Value Evaluator::comparison(const Expr& expr) {
  Value left = eval(*expr.children[0]);
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    Value right = eval(*expr.children[i + 1]);
    if (run_.failed() || !holds(run_, expr.operators[i], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

Value Evaluator::concatenation(const Expr& expr) {
  Text out;
  for (const ExprPtr& child : expr.children) {
    out.append(run_.str(eval(*child)));
    if (run_.failed()) break;
  }
  return run_.text(std::move(out));
}

Value Evaluator::dict(const Expr& expr) {
  const std::size_t count = expr.children.size() / 2;
  if (!run_.charge(count * count / 64)) return Undefined{};
  std::vector<std::pair<Value, Value>> items;
  for (std::size_t i = 0; i < count; ++i) {
    Value key = eval(*expr.children[2 * i]);
    if (as_dict(key) != nullptr || (as_list(key) != nullptr && !as_list(key)->is_tuple)) {
      return run_.fail(fmt::format("a {} as the key of a dict", type_name(key)));
    }
    items.emplace_back(std::move(key), eval(*expr.children[2 * i + 1]));
  }
  return run_.checked(make_dict(std::move(items)));
}

Value Evaluator::condition(const Expr& expr) {
  if (truthy(eval(*expr.children[0]))) return eval(*expr.children[1]);
  if (expr.children[2]) return eval(*expr.children[2]);
  return Undefined{"the condition was false and there is no else"};
}

Value Evaluator::step(const Step& step, Value value) {
  switch (step.kind) {
    case Step::Kind::attribute: return run_.attribute(value, step.name);
    case Step::Kind::index: {
      const Value index = eval(*step.index);
      return run_.failed() ? index : run_.item(value, index);
    }
    case Step::Kind::slice: {
      const auto bound = [&](const ExprPtr& expr) { return expr ? eval(*expr) : Value(None{}); };
      const Value start = bound(step.index), stop = bound(step.stop), stride = bound(step.stride);
      return run_.failed() ? Value() : slice(run_, value, &start, &stop, &stride);
    }
    case Step::Kind::call: {
      const CallArguments args = arguments(step.arguments);
      return run_.failed() ? Value() : call(value, args);
    }
    case Step::Kind::filter: {
      const CallArguments args = arguments(step.arguments);
      return run_.failed() ? Value() : run_.checked(apply_filter(run_, step.name, value, args));
    }
    case Step::Kind::test: {
      const CallArguments args = arguments(step.arguments);
      return !run_.failed() && apply_test(run_, step.name, value, args) != step.negated;
    }
  }
  return Undefined{};
}

CallArguments Evaluator::arguments(const Arguments& args) {
  CallArguments out;
  out.positional = eval_all(args.positional);
  for (const auto& [name, expr] : args.named) out.named.emplace_back(name, eval(*expr));
  return out;
}

Value Evaluator::call(const Value& callee, const CallArguments& args) {
  if (const auto* undefined = std::get_if<Undefined>(&callee)) return run_.fail(undefined->why);
  if (const auto* macro = std::get_if<const Macro*>(&callee)) return call_macro(**macro, args);
  if (const auto* builtin = std::get_if<Builtin>(&callee)) return call_builtin(*builtin, args);
  if (const auto* method = std::get_if<std::shared_ptr<const Method>>(&callee)) {
    return run_.checked(call_method(run_, (*method)->self, (*method)->name, args));
  }
  return run_.fail(fmt::format("a {} cannot be called", type_name(callee)));
}

Value Evaluator::call_builtin(Builtin builtin, const CallArguments& args) {
  switch (builtin) {
    case Builtin::range: return make_range(args);
    case Builtin::make_namespace: {
      if (!args.positional.empty()) return run_.fail("namespace() takes named arguments only");
      Namespace& space = namespaces_.emplace_back();
      for (const auto& [name, value] : args.named) space.members.insert_or_assign(name, value);
      return &space;
    }
    case Builtin::make_dict: {
      if (!args.positional.empty()) return run_.fail("dict() takes named arguments only");
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [name, value] : args.named) items.emplace_back(make_text(name), value);
      return run_.checked(make_dict(std::move(items)));
    }
    case Builtin::raise_exception: {
      const auto values = bind(run_, "raise_exception", args, {"message"}, 1);
      if (run_.failed()) return Undefined{};
      const Text message = run_.str(*values[0]);
      return run_.fail(fmt::format("it refuses these messages: {}", message.view()));
    }
    case Builtin::strftime_now: {
      const auto values = bind(run_, "strftime_now", args, {"format"}, 1);
      if (run_.failed()) return Undefined{};
      const Text* format = as_text(*values[0]);
      if (format == nullptr) return run_.fail("strftime_now() wants a string");
      return format_time(*format);
    }
  }
  return Undefined{};
}

Value Evaluator::make_range(const CallArguments& args) {
  const auto values = bind(run_, "range", args, {"start", "stop", "step"}, 1);
  if (run_.failed()) return Undefined{};
  std::array<std::int64_t, 3> bounds{0, 0, 1};
  for (std::size_t i = 0; i < 3; ++i) {
    if (values[i] == nullptr) continue;
    const std::optional<std::int64_t> bound = as_integer(*values[i]);
    if (!bound)
      return run_.fail(fmt::format("range() wants integers, not a {}", type_name(*values[i])));
    bounds[i] = *bound;
  }
  if (values[1] == nullptr) {
    bounds[1] = bounds[0];
    bounds[0] = 0;
  }
  const auto [start, stop, stride] = bounds;
  if (stride == 0) return run_.fail("range() with a step of zero");
  std::vector<Value> items;
  for (std::int64_t at = start; stride > 0 ? at < stop : at > stop;) {
    if (static_cast<std::int64_t>(items.size()) >= run_.limits().range_max) {
      return run_.fail(fmt::format("range() of more than {} elements", run_.limits().range_max));
    }
    items.emplace_back(at);
    if (__builtin_add_overflow(at, stride, &at)) break;
  }
  if (!run_.charge(items.size() / 16)) return Undefined{};
  return make_list(std::move(items));
}

Value Evaluator::format_time(const Text& format) {
  constexpr std::size_t kFormatBytesMax = 256;
  if (format.size() > kFormatBytesMax) {
    return run_.fail(
        fmt::format("strftime_now() with a format of more than {} bytes", kFormatBytesMax));
  }
  const std::time_t now = now_unix_s_;
  std::tm parts{};
  if (::gmtime_r(&now, &parts) == nullptr) return run_.fail("the time is out of range");
  std::array<char, 16 * kFormatBytesMax> buffer{};
  const std::size_t size =
      std::strftime(buffer.data(), buffer.size(), format.bytes().c_str(), &parts);
  // Where the format came from decides: its literal text shows up in the result.
  bool content = false;
  for (const Text::Run& run : format.runs()) content = content || run.content;
  return run_.text(Text(std::string(buffer.data(), size), content));
}

}  // namespace baton::jinja
