#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/model/jinja_ast.h"
#include "runtime/model/jinja_filters.h"
#include "runtime/model/jinja_run.h"

namespace baton::jinja {

// Renders one template once: owns the scopes, namespaces and loops of that run. One thread. The
// template's tree must outlive it.
class Evaluator {
 public:
  using Variables = std::vector<std::pair<std::string, Value>>;

  Evaluator(const RunLimits& limits, Variables globals, std::int64_t now_unix_s);

  // The text, or invalid_argument with the line of the template.
  Result<Text> render(const Body& body);

 private:
  enum class Flow { on, stop_loop, next_item };
  struct Scope {
    Variables variables;
    bool hides = false;  // of a macro: between it and the outermost scope nothing is visible
  };

  Flow execute(const Body& body);
  Flow execute(const Statement& statement);
  Flow branch(const Statement& statement);
  Flow loop(const Statement& statement);
  Flow loop_over(const Statement& statement, std::vector<Value> items);
  std::vector<Value> loop_items(const Statement& statement);
  void capture(const Statement& statement);
  void print(const Value& value);
  Text body_text(const Body& body);

  void set(std::string_view name, Value value);
  void assign(const Target& target, const Value& value);
  Value look_up(const std::string& name);
  static const Value* find_in(const Scope& scope, std::string_view name);

  Value eval(const Expr& expr);
  Value eval_plain(const Expr& expr);
  std::vector<Value> eval_all(const std::vector<ExprPtr>& exprs);
  Value arithmetic(const Expr& expr);
  Value comparison(const Expr& expr);
  Value concatenation(const Expr& expr);
  Value dict(const Expr& expr);
  Value condition(const Expr& expr);
  Value step(const Step& step, Value value);
  CallArguments arguments(const Arguments& args);
  Value call(const Value& callee, const CallArguments& args);
  Value call_macro(const Macro& macro, const CallArguments& args);
  Value call_builtin(Builtin builtin, const CallArguments& args);
  Value make_range(const CallArguments& args);
  Value format_time(const Text& format);

  // Counts one level of evaluation while it lives.
  class Frame {
   public:
    explicit Frame(Evaluator& evaluator);
    ~Frame() { --evaluator_.frames_; }
    Frame(const Frame&) = delete;
    Frame& operator=(const Frame&) = delete;

   private:
    Evaluator& evaluator_;
  };

  Run run_;
  Variables globals_;
  std::int64_t now_unix_s_;
  std::vector<Scope> scopes_;  // the first is the template's own
  std::deque<Namespace>
      namespaces_;          // stable addresses; freed with the run, as values point at them
  std::deque<Loop> loops_;  // the same
  int loop_depth_ = 0;
  int macro_depth_ = 0;
  int frames_ = 0;
  Text output_;
  Text* out_ = &output_;  // where text goes now
};

}  // namespace baton::jinja
