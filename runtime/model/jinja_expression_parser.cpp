#include "runtime/model/jinja_expression_parser.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <utility>

#include "runtime/model/jinja_filters.h"
#include "runtime/model/jinja_parser.h"

namespace baton::jinja {

ExpressionParser::Nested::Nested(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > kNestingMax) {
    parser_.fail(fmt::format("nesting deeper than {} levels", kNestingMax));
  }
}

void ExpressionParser::fail(std::string_view what) {
  if (error_.empty()) error_ = at_line(line(), what);
}

void ExpressionParser::next() {
  if (at_ + 1 < tokens_.size()) ++at_;
}

bool ExpressionParser::is_op(std::string_view op) const {
  return current().kind == TokenKind::op && current().text == op;
}

bool ExpressionParser::is_name(std::string_view name) const {
  return current().kind == TokenKind::name && current().text == name;
}

bool ExpressionParser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  next();
  return true;
}

bool ExpressionParser::skip_name(std::string_view name) {
  if (!is_name(name)) return false;
  next();
  return true;
}

std::string ExpressionParser::found() const {
  switch (current().kind) {
    case TokenKind::data: return "text";
    case TokenKind::variable_begin: return "'{{'";
    case TokenKind::variable_end: return "'}}'";
    case TokenKind::block_begin: return "'{%'";
    case TokenKind::block_end: return "'%}'";
    case TokenKind::string: return "a string";
    case TokenKind::end: return "the end of the template";
    case TokenKind::name:
    case TokenKind::integer:
    case TokenKind::real:
    case TokenKind::op: return fmt::format("'{:.64}'", current().text);
  }
  return "";
}

void ExpressionParser::expect_op(std::string_view op) {
  if (!skip_op(op)) fail(fmt::format("got {}; expected '{}'", found(), op));
}

void ExpressionParser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail(fmt::format("got {}; expected '{}'", found(), name));
}

void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (current().kind != kind) {
    fail(fmt::format("got {}; expected {}", found(), what));
    return;
  }
  next();
}

std::string ExpressionParser::take_name(std::string_view what) {
  std::string name = current().text;
  expect(TokenKind::name, what);
  return name;
}

ExprPtr ExpressionParser::make(Expr::Kind kind) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line();
  return expr;
}

ExprPtr ExpressionParser::literal(Value value) {
  ExprPtr expr = make(Expr::Kind::literal);
  expr->value = std::move(value);
  return expr;
}

ExprPtr ExpressionParser::expression_without_if() {
  return any_of();
}

ExprPtr ExpressionParser::expression() {
  ExprPtr value = any_of();
  if (failed() || !is_name("if")) return value;
  const Nested nested(*this);  // conditions follow one another by recursion
  ExprPtr condition = make(Expr::Kind::condition);
  next();
  condition->children.push_back(any_of());
  condition->children.push_back(std::move(value));
  condition->children.push_back(skip_name("else") && !failed() ? expression() : nullptr);
  return condition;
}

ExprPtr ExpressionParser::tuple(bool with_condition, std::string_view end) {
  ExprPtr items = make(Expr::Kind::tuple);
  bool is_tuple = false;
  while (!failed()) {
    if (current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
        is_op(")") || (!end.empty() && is_name(end))) {
      break;
    }
    items->children.push_back(with_condition ? expression() : expression_without_if());
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return items;
  if (items->children.empty()) {
    fail(fmt::format("got {}; expected an expression", found()));
    return items;
  }
  return std::move(items->children[0]);
}

ExprPtr ExpressionParser::joined(Expr::Kind kind, std::string_view name, Parse part) {
  ExprPtr first = (this->*part)();
  if (!is_name(name)) return first;
  ExprPtr all = make(kind);
  all->children.push_back(std::move(first));
  while (!failed() && skip_name(name)) all->children.push_back((this->*part)());
  return all;
}

ExprPtr ExpressionParser::any_of() {
  return joined(Expr::Kind::any_of, "or", &ExpressionParser::all_of);
}

ExprPtr ExpressionParser::all_of() {
  return joined(Expr::Kind::all_of, "and", &ExpressionParser::negation);
}

ExprPtr ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Nested nested(*this);
  ExprPtr expr = make(Expr::Kind::negate);
  next();
  if (failed()) return expr;
  expr->children.push_back(negation());
  return expr;
}

bool ExpressionParser::comparison_operator(Operator& op) {
  constexpr std::pair<std::string_view, Operator> kOps[] = {
      {"==", Operator::equal},      {"!=", Operator::not_equal}, {"<", Operator::less},
      {"<=", Operator::less_equal}, {">", Operator::greater},    {">=", Operator::greater_equal},
  };
  for (const auto& [text, known] : kOps) {
    if (!skip_op(text)) continue;
    op = known;
    return true;
  }
  if (skip_name("in")) {
    op = Operator::in;
    return true;
  }
  if (is_name("not") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].kind == TokenKind::name &&
      tokens_[at_ + 1].text == "in") {
    next();
    next();
    op = Operator::not_in;
    return true;
  }
  return false;
}

ExprPtr ExpressionParser::comparison() {
  ExprPtr first = sum();
  ExprPtr all = make(Expr::Kind::compare);
  Operator op{};
  while (!failed() && comparison_operator(op)) {
    if (all->children.empty()) all->children.push_back(std::move(first));
    all->operators.push_back(op);
    all->children.push_back(sum());
  }
  return all->children.empty() ? std::move(first) : std::move(all);
}

ExprPtr ExpressionParser::arithmetic(
    Parse part, const std::vector<std::pair<std::string_view, Operator>>& ops) {
  ExprPtr first = (this->*part)();
  ExprPtr all = make(Expr::Kind::arithmetic);
  for (bool more = true; more && !failed();) {
    more = false;
    for (const auto& [text, op] : ops) {
      if (!skip_op(text)) continue;
      if (all->children.empty()) all->children.push_back(std::move(first));
      all->operators.push_back(op);
      all->children.push_back((this->*part)());
      more = true;
      break;
    }
  }
  return all->children.empty() ? std::move(first) : std::move(all);
}

ExprPtr ExpressionParser::sum() {
  return arithmetic(&ExpressionParser::concatenation,
                    {{"+", Operator::add}, {"-", Operator::subtract}});
}

ExprPtr ExpressionParser::concatenation() {
  ExprPtr first = product();
  if (!is_op("~")) return first;
  ExprPtr all = make(Expr::Kind::concat);
  all->children.push_back(std::move(first));
  while (!failed() && skip_op("~")) all->children.push_back(product());
  return all;
}

ExprPtr ExpressionParser::product() {
  return arithmetic(&ExpressionParser::power, {{"*", Operator::multiply},
                                               {"/", Operator::divide},
                                               {"//", Operator::floor_divide},
                                               {"%", Operator::modulo}});
}

ExprPtr ExpressionParser::power() {
  return arithmetic(&ExpressionParser::unary, {{"**", Operator::power}});
}

ExprPtr ExpressionParser::unary() {
  return signed_operand(true);
}

ExprPtr ExpressionParser::signed_operand(bool with_filters) {
  const Nested nested(*this);
  ExprPtr operand = make(Expr::Kind::steps);
  if (failed()) return operand;
  if (is_op("-") || is_op("+")) {
    ExprPtr sign = make(is_op("-") ? Expr::Kind::minus : Expr::Kind::plus);
    next();
    sign->children.push_back(signed_operand(false));
    operand->children.push_back(std::move(sign));
  } else {
    operand->children.push_back(primary());
  }
  postfix(*operand);
  if (with_filters) filters_and_tests(*operand);
  return operand->steps.empty() ? std::move(operand->children[0]) : std::move(operand);
}

ExprPtr ExpressionParser::primary() {
  const Token& token = current();
  switch (token.kind) {
    case TokenKind::name: {
      ExprPtr expr = make(Expr::Kind::name);
      expr->text = token.text;
      if (token.text == "true" || token.text == "True") expr = literal(true);
      if (token.text == "false" || token.text == "False") expr = literal(false);
      if (token.text == "none" || token.text == "None") expr = literal(None{});
      next();
      return expr;
    }
    case TokenKind::string: {
      std::string text;
      while (current().kind == TokenKind::string) {
        text += current().text;
        next();
      }
      return literal(make_text(std::move(text)));
    }
    case TokenKind::integer:
    case TokenKind::real: return number();
    case TokenKind::op: return bracketed();
    case TokenKind::data:
    case TokenKind::variable_begin:
    case TokenKind::variable_end:
    case TokenKind::block_begin:
    case TokenKind::block_end:
    case TokenKind::end: break;
  }
  fail(fmt::format("got {}; expected an expression", found()));
  return literal(None{});
}

ExprPtr ExpressionParser::number() {
  const std::string& text = current().text;
  ExprPtr expr = literal(None{});
  if (current().kind == TokenKind::integer) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) fail(fmt::format("the number {:.64} is too large", text));
    expr->value = value;
  } else {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc()) fail(fmt::format("the number {:.64} is out of range", text));
    expr->value = value;
  }
  next();
  return expr;
}

ExprPtr ExpressionParser::bracketed() {
  if (skip_op("(")) {
    ExprPtr expr = is_op(")") ? make(Expr::Kind::tuple) : tuple(true);
    expect_op(")");
    return expr;
  }
  if (is_op("[")) return list();
  if (is_op("{")) return dict();
  fail(fmt::format("got {}; expected an expression", found()));
  return literal(None{});
}

ExprPtr ExpressionParser::list() {
  ExprPtr expr = make(Expr::Kind::list);
  expect_op("[");
  while (!failed() && !is_op("]")) {
    expr->children.push_back(expression());
    if (!is_op("]")) expect_op(",");
  }
  expect_op("]");
  return expr;
}

ExprPtr ExpressionParser::dict() {
  ExprPtr expr = make(Expr::Kind::dict);
  expect_op("{");
  while (!failed() && !is_op("}")) {
    expr->children.push_back(expression());
    expect_op(":");
    expr->children.push_back(expression());
    if (!is_op("}")) expect_op(",");
  }
  expect_op("}");
  return expr;
}

void ExpressionParser::postfix(Expr& expr) {
  while (!failed()) {
    if (is_op(".") || is_op("[")) {
      expr.steps.push_back(subscript());
    } else if (is_op("(")) {
      Step step;
      step.kind = Step::Kind::call;
      step.line = line();
      step.arguments = arguments();
      expr.steps.push_back(std::move(step));
    } else {
      return;
    }
  }
}

void ExpressionParser::filters_and_tests(Expr& expr) {
  while (!failed()) {
    if (is_op("|")) {
      expr.steps.push_back(filter());
    } else if (is_name("is")) {
      expr.steps.push_back(test());
    } else if (is_op("(")) {
      postfix(expr);
    } else {
      return;
    }
  }
}

Step ExpressionParser::subscript() {
  Step step;
  step.line = line();
  if (skip_op(".")) {
    step.name = current().text;
    if (current().kind == TokenKind::integer) {
      step.kind = Step::Kind::index;
      step.index = number();
      return step;
    }
    expect(TokenKind::name, "a name behind '.'");
    return step;
  }
  expect_op("[");
  step.kind = Step::Kind::index;
  if (!is_op(":")) step.index = tuple(true);
  if (skip_op(":")) {
    step.kind = Step::Kind::slice;
    if (!is_op(":") && !is_op("]")) step.stop = expression();
    if (skip_op(":") && !is_op("]")) step.stride = expression();
  }
  expect_op("]");
  return step;
}

std::vector<Step> ExpressionParser::filters() {
  std::vector<Step> steps;
  while (!failed() && is_op("|")) steps.push_back(filter());
  return steps;
}

Step ExpressionParser::filter() {
  Step step;
  step.kind = Step::Kind::filter;
  step.line = line();
  expect_op("|");
  step.name = take_name("the name of a filter");
  if (!failed() && !is_filter(step.name)) {
    fail(fmt::format("the filter '{:.64}' is not supported", step.name));
  }
  if (is_op("(")) step.arguments = arguments();
  return step;
}

Step ExpressionParser::test() {
  Step step;
  step.kind = Step::Kind::test;
  step.line = line();
  expect_name("is");
  step.negated = skip_name("not");
  step.name = take_name("the name of a test");
  if (!failed() && !is_test(step.name)) {
    fail(fmt::format("the test '{:.64}' is not supported", step.name));
  }
  if (is_op("(")) {
    step.arguments = arguments();
    return step;
  }
  const TokenKind kind = current().kind;
  const bool argument_follows =
      kind == TokenKind::string || kind == TokenKind::integer || kind == TokenKind::real ||
      is_op("[") || is_op("{") ||
      (kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and") &&
       !is_name("if") && !is_name("in") && !is_name("not"));
  if (!argument_follows) return step;
  if (is_name("is")) fail("two tests in a row; join them with 'and'");
  const Nested nested(*this);
  ExprPtr operand = make(Expr::Kind::steps);
  if (failed()) return step;
  operand->children.push_back(primary());
  postfix(*operand);
  step.arguments.positional.push_back(std::move(operand));
  return step;
}

Arguments ExpressionParser::arguments() {
  Arguments out;
  expect_op("(");
  while (!failed() && !is_op(")")) {
    const bool named = current().kind == TokenKind::name && at_ + 1 < tokens_.size() &&
                       tokens_[at_ + 1].kind == TokenKind::op && tokens_[at_ + 1].text == "=";
    if (named) {
      std::string name = take_name("a name");
      expect_op("=");
      out.named.emplace_back(std::move(name), expression());
    } else if (is_op("*") || is_op("**")) {
      fail("unpacking arguments with '*' is not supported");
    } else {
      if (!out.named.empty()) fail("an argument without name behind one with a name");
      out.positional.push_back(expression());
    }
    if (!is_op(")")) expect_op(",");
  }
  expect_op(")");
  return out;
}

}  // namespace baton::jinja
