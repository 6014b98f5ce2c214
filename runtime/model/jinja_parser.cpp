#include "runtime/model/jinja_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "runtime/model/jinja_expression_parser.h"

namespace baton::jinja {
namespace {

// Reads statements; one use. The expression parser keeps the stream and the first failure.
class StatementParser {
 public:
  explicit StatementParser(std::vector<Token> tokens) : in_(std::move(tokens)) {}

  Result<Body> run() {
    Body body = until({});
    if (in_.failed()) return Error{ErrorCode::bad_model, in_.error()};
    return body;
  }

 private:
  // Statements up to a block whose name is one of `ends` (then positioned at that name), or, if
  // there are none, up to the end of the template.
  Body until(std::initializer_list<std::string_view> ends) {
    Body body;
    const ExpressionParser::Nested nested(in_);
    while (!in_.failed()) {
      const Token& token = in_.current();
      if (token.kind == TokenKind::end) {
        if (ends.size() != 0) {
          in_.fail(fmt::format("the template ends within a block; expected '{{% {} %}}'",
                               *(ends.end() - 1)));
        }
        break;
      }
      if (token.kind == TokenKind::data) {
        Statement data = make(Statement::Kind::data);
        data.text = make_text(token.text);
        body.push_back(std::move(data));
        in_.next();
      } else if (token.kind == TokenKind::variable_begin) {
        body.push_back(output());
      } else {
        in_.expect(TokenKind::block_begin, "text or a tag");
        if (std::any_of(ends.begin(), ends.end(), [&](auto end) { return in_.is_name(end); }))
          break;
        body.push_back(block());
      }
    }
    return body;
  }

  Statement make(Statement::Kind kind) const {
    Statement statement;
    statement.kind = kind;
    statement.line = in_.line();
    return statement;
  }

  void end_block() { in_.expect(TokenKind::block_end, "'%}'"); }

  // A body and the block that ends it.
  Body body_until(std::string_view end) {
    Body body = until({end});
    in_.expect_name(end);
    end_block();
    return body;
  }

  Statement output() {
    Statement statement = make(Statement::Kind::output);
    in_.next();
    statement.exprs.push_back(in_.tuple(true));
    in_.expect(TokenKind::variable_end, "'}}'");
    return statement;
  }

  Statement block() {
    if (in_.is_name("if")) return branch();
    if (in_.is_name("for")) return loop();
    if (in_.is_name("set")) return assign();
    if (in_.is_name("macro")) return macro();
    if (in_.is_name("generation")) {
      Statement group = make(Statement::Kind::group);
      in_.next();
      end_block();
      group.bodies.push_back(body_until("endgeneration"));
      return group;
    }
    if (in_.is_name("break") || in_.is_name("continue")) {
      Statement jump =
          make(in_.is_name("break") ? Statement::Kind::stop_loop : Statement::Kind::next_item);
      if (loops_ == 0) in_.fail(fmt::format("{} outside of a loop", in_.found()));
      in_.next();
      end_block();
      return jump;
    }
    in_.fail(fmt::format(
        "the block {} is not supported here; supported are if, for, set, macro, raw, break, "
        "continue and generation",
        in_.found()));
    return make(Statement::Kind::group);
  }

  Statement branch() {
    Statement statement = make(Statement::Kind::branch);
    in_.expect_name("if");
    for (;;) {
      statement.exprs.push_back(in_.tuple(false));
      end_block();
      statement.bodies.push_back(until({"elif", "else", "endif"}));
      if (in_.failed() || !in_.skip_name("elif")) break;
    }
    if (in_.skip_name("else")) {
      end_block();
      statement.bodies.push_back(until({"endif"}));
    }
    in_.expect_name("endif");
    end_block();
    return statement;
  }

  Statement loop() {
    Statement statement = make(Statement::Kind::loop);
    in_.expect_name("for");
    statement.target = target(false);
    in_.expect_name("in");
    statement.exprs.push_back(in_.tuple(false, "recursive"));
    statement.exprs.push_back(in_.skip_name("if") ? in_.expression() : nullptr);
    if (in_.is_name("recursive")) in_.fail("recursive loops are not supported");
    end_block();
    ++loops_;
    statement.bodies.push_back(until({"else", "endfor"}));
    --loops_;
    if (in_.skip_name("else")) {
      end_block();
      statement.bodies.push_back(until({"endfor"}));
    } else {
      statement.bodies.emplace_back();
    }
    in_.expect_name("endfor");
    end_block();
    return statement;
  }

  Target target(bool with_member) {
    Target out;
    const bool parenthesis = in_.skip_op("(");
    do {
      if (out.unpack && in_.is_name("in")) break;
      out.names.push_back(in_.take_name("a name to assign to"));
      if (in_.is_op(",")) out.unpack = true;
    } while (!in_.failed() && in_.skip_op(","));
    if (parenthesis) in_.expect_op(")");
    if (with_member && !out.unpack && in_.skip_op(".")) {
      out.member = in_.take_name("the name of a namespace's member");
    }
    for (const std::string& name : out.names) check_assignable(name);
    return out;
  }

  void check_assignable(const std::string& name) {
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) in_.fail(fmt::format("'{}' cannot be assigned to", name));
    }
  }

  Statement assign() {
    Statement statement = make(Statement::Kind::assign);
    in_.expect_name("set");
    statement.target = target(true);
    if (in_.skip_op("=")) {
      statement.exprs.push_back(in_.tuple(true));
      end_block();
      return statement;
    }
    statement.kind = Statement::Kind::capture;
    ExprPtr filters;
    if (std::vector<Step> steps = in_.filters(); !steps.empty()) {
      filters = std::make_unique<Expr>();
      filters->kind = Expr::Kind::steps;
      filters->line = statement.line;
      filters->steps = std::move(steps);
    }
    statement.exprs.push_back(std::move(filters));
    end_block();
    statement.bodies.push_back(body_until("endset"));
    return statement;
  }

  Statement macro() {
    Statement statement = make(Statement::Kind::macro);
    in_.expect_name("macro");
    statement.macro = std::make_unique<Macro>();
    Macro& macro = *statement.macro;
    macro.name = in_.take_name("the name of a macro");
    in_.expect_op("(");
    while (!in_.failed() && !in_.is_op(")")) {
      macro.parameters.push_back(in_.take_name("the name of a parameter"));
      macro.defaults.push_back(in_.skip_op("=") ? in_.expression() : nullptr);
      if (!macro.defaults.back() && macro.defaults.size() > 1 &&
          macro.defaults[macro.defaults.size() - 2]) {
        in_.fail("a parameter without default behind one with a default");
      }
      if (!in_.is_op(")")) in_.expect_op(",");
    }
    in_.expect_op(")");
    end_block();
    const int loops = std::exchange(loops_, 0);
    macro.body = body_until("endmacro");
    loops_ = loops;
    return statement;
  }

  ExpressionParser in_;
  int loops_ = 0;  // that surround the current position
};

}  // namespace

Result<Body> parse(std::vector<Token> tokens) {
  return StatementParser(std::move(tokens)).run();
}

}  // namespace baton::jinja
