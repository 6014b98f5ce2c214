#include "runtime/model/jinja_evaluator.h"

#include <fmt/format.h>

#include <utility>

namespace baton::jinja {

Evaluator::Evaluator(const RunLimits& limits, Variables globals, std::int64_t now_unix_s)
    : run_(limits), globals_(std::move(globals)), now_unix_s_(now_unix_s), scopes_(1) {
  globals_.emplace_back("range", Builtin::range);
  globals_.emplace_back("namespace", Builtin::make_namespace);
  globals_.emplace_back("dict", Builtin::make_dict);
  globals_.emplace_back("raise_exception", Builtin::raise_exception);
  globals_.emplace_back("strftime_now", Builtin::strftime_now);
}

Evaluator::Frame::Frame(Evaluator& evaluator) : evaluator_(evaluator) {
  if (++evaluator_.frames_ > evaluator_.run_.limits().frames_max) {
    evaluator_.run_.fail(
        fmt::format("evaluation nested deeper than {}", evaluator_.run_.limits().frames_max));
  }
}

Result<Text> Evaluator::render(const Body& body) {
  execute(body);
  if (run_.failed()) return Error{ErrorCode::invalid_argument, run_.error()};
  return std::move(output_);
}

Evaluator::Flow Evaluator::execute(const Body& body) {
  const Frame frame(*this);
  for (const Statement& statement : body) {
    run_.set_line(statement.line);
    if (!run_.charge(1)) return Flow::on;
    const Flow flow = execute(statement);
    if (flow != Flow::on) return flow;
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::execute(const Statement& statement) {
  switch (statement.kind) {
    case Statement::Kind::data: print(statement.text); return Flow::on;
    case Statement::Kind::output: print(eval(*statement.exprs[0])); return Flow::on;
    case Statement::Kind::branch: return branch(statement);
    case Statement::Kind::loop: return loop(statement);
    case Statement::Kind::assign:
      assign(statement.target, eval(*statement.exprs[0]));
      return Flow::on;
    case Statement::Kind::capture: capture(statement); return Flow::on;
    case Statement::Kind::macro: set(statement.macro->name, statement.macro.get()); return Flow::on;
    case Statement::Kind::stop_loop: return Flow::stop_loop;
    case Statement::Kind::next_item: return Flow::next_item;
    case Statement::Kind::group: return execute(statement.bodies[0]);
  }
  return Flow::on;
}

Evaluator::Flow Evaluator::branch(const Statement& statement) {
  for (std::size_t i = 0; i < statement.exprs.size(); ++i) {
    if (truthy(eval(*statement.exprs[i]))) return execute(statement.bodies[i]);
    if (run_.failed()) return Flow::on;
  }
  if (statement.bodies.size() > statement.exprs.size()) return execute(statement.bodies.back());
  return Flow::on;
}

std::vector<Value> Evaluator::loop_items(const Statement& statement) {
  std::vector<Value> items = run_.iterate(eval(*statement.exprs[0]));
  if (!statement.exprs[1]) return items;
  std::vector<Value> kept;
  for (Value& item : items) {
    scopes_.emplace_back();
    assign(statement.target, item);
    const bool keep = truthy(eval(*statement.exprs[1]));
    scopes_.pop_back();
    if (run_.failed()) break;
    if (keep) kept.push_back(std::move(item));
  }
  return kept;
}

Evaluator::Flow Evaluator::loop(const Statement& statement) {
  std::vector<Value> items = loop_items(statement);
  if (run_.failed()) return Flow::on;
  if (!items.empty()) return loop_over(statement, std::move(items));
  scopes_.emplace_back();
  const Flow flow = execute(statement.bodies[1]);
  scopes_.pop_back();
  return flow;  // a break there belongs to the loop around
}

Evaluator::Flow Evaluator::loop_over(const Statement& statement, std::vector<Value> items) {
  loops_.emplace_back();
  Loop& state = loops_.back();
  state.items = std::make_shared<const List>(List{std::move(items), false, {}});
  state.depth = ++loop_depth_;
  for (; state.index < state.items->items.size(); ++state.index) {
    run_.set_line(statement.line);
    if (!run_.charge(1)) break;
    scopes_.emplace_back();
    scopes_.back().variables.emplace_back("loop", &std::as_const(state));
    assign(statement.target, state.items->items[state.index]);
    const Flow flow = execute(statement.bodies[0]);
    scopes_.pop_back();
    if (run_.failed() || flow == Flow::stop_loop) break;
  }
  --loop_depth_;
  return Flow::on;
}

Text Evaluator::body_text(const Body& body) {
  Text text;
  Text* const before = std::exchange(out_, &text);
  execute(body);
  out_ = before;
  return text;
}

void Evaluator::capture(const Statement& statement) {
  scopes_.emplace_back();
  Value value = run_.text(body_text(statement.bodies[0]));
  scopes_.pop_back();
  if (statement.exprs[0]) {
    for (const Step& filter : statement.exprs[0]->steps) value = step(filter, std::move(value));
  }
  assign(statement.target, value);
}

void Evaluator::print(const Value& value) {
  if (!run_.charge_weight(value)) return;
  append_str(*out_, value);
  if (out_->size() > run_.limits().text_bytes_max) {
    run_.fail(fmt::format("output of more than {} bytes", run_.limits().text_bytes_max));
  }
}

void Evaluator::set(std::string_view name, Value value) {
  Variables& variables = scopes_.back().variables;
  for (auto& [known, old] : variables) {
    if (known != name) continue;
    old = std::move(value);
    return;
  }
  run_.charge(variables.size() / 16);
  variables.emplace_back(name, std::move(value));
}

void Evaluator::assign(const Target& target, const Value& value) {
  if (run_.failed()) return;
  if (!target.member.empty()) {
    const Value space = look_up(target.names[0]);
    if (!std::holds_alternative<Namespace*>(space)) {
      run_.fail(
          fmt::format("'{:.64}' is no namespace, so its members cannot be set", target.names[0]));
      return;
    }
    std::get<Namespace*>(space)->members.insert_or_assign(target.member, value);
    return;
  }
  if (!target.unpack) {
    set(target.names[0], value);
    return;
  }
  const std::vector<Value> parts = run_.iterate(value);
  if (run_.failed()) return;
  if (parts.size() != target.names.size()) {
    run_.fail(fmt::format("{} values for {} names", parts.size(), target.names.size()));
    return;
  }
  for (std::size_t i = 0; i < parts.size(); ++i) set(target.names[i], parts[i]);
}

const Value* Evaluator::find_in(const Scope& scope, std::string_view name) {
  for (const auto& [known, value] : scope.variables) {
    if (known == name) return &value;
  }
  return nullptr;
}

Value Evaluator::look_up(const std::string& name) {
  for (std::size_t i = scopes_.size(); i-- > 0;) {
    if (const Value* found = find_in(scopes_[i], name)) return *found;
    if (!scopes_[i].hides) continue;
    if (const Value* found = find_in(scopes_[0], name)) return *found;
    break;
  }
  for (const auto& [known, value] : globals_) {
    if (known == name) return value;
  }
  return Undefined{fmt::format("'{:.64}' is undefined", name)};
}

Value Evaluator::call_macro(const Macro& macro, const CallArguments& args) {
  if (macro_depth_ >= run_.limits().depth_max) {
    return run_.fail(fmt::format("macros nested deeper than {} levels", run_.limits().depth_max));
  }
  if (args.positional.size() > macro.parameters.size()) {
    return run_.fail(fmt::format("the macro '{:.64}' takes {} arguments, but got {}", macro.name,
                                 macro.parameters.size(), args.positional.size()));
  }
  std::vector<const Value*> given(macro.parameters.size(), nullptr);
  for (std::size_t i = 0; i < args.positional.size(); ++i) given[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    std::size_t i = 0;
    while (i < given.size() && macro.parameters[i] != name) ++i;
    if (i == given.size() || given[i] != nullptr) {
      return run_.fail(fmt::format("the macro '{:.64}' does not take the argument '{:.64}' here",
                                   macro.name, name));
    }
    given[i] = &value;
  }
  ++macro_depth_;
  const int loops_around = std::exchange(loop_depth_, 0);
  scopes_.push_back({{}, true});
  for (std::size_t i = 0; i < given.size() && !run_.failed(); ++i) {
    Value value =
        Undefined{fmt::format("the parameter '{:.64}' was not given", macro.parameters[i])};
    if (given[i] != nullptr) {
      value = *given[i];
    } else if (macro.defaults[i]) {
      value = eval(*macro.defaults[i]);
    }
    set(macro.parameters[i], std::move(value));
  }
  Value result = run_.text(body_text(macro.body));
  scopes_.pop_back();
  loop_depth_ = loops_around;
  --macro_depth_;
  return result;
}

}  // namespace baton::jinja
