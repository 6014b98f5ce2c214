#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/model/jinja_ast.h"
#include "runtime/model/jinja_lexer.h"

namespace baton::jinja {

// Reads expressions from a stream of tokens; the statement parser builds on it. After the first
// failure `failed()` is true, `error()` has the sentence, and everything returns at once with
// something that must not be used.
class ExpressionParser {
 public:
  explicit ExpressionParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  bool failed() const { return !error_.empty(); }
  const std::string& error() const { return error_; }
  void fail(std::string_view what);  // keeps the first

  const Token& current() const { return tokens_[at_]; }
  int line() const { return current().line; }
  void next();
  bool is_op(std::string_view op) const;
  bool is_name(std::string_view name) const;
  bool skip_op(std::string_view op);  // and says whether it was there
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  void expect(TokenKind kind, std::string_view what);
  std::string take_name(std::string_view what);
  std::string found() const;  // the current token, for sentences

  ExprPtr expression();             // with `a if b else c`
  ExprPtr expression_without_if();  // where an `if` belongs to the statement
  // The same, or a tuple where commas follow; `end` is a name that ends it.
  ExprPtr tuple(bool with_condition, std::string_view end = {});
  std::vector<Step> filters();  // none or more of | filter

  // Counts one level of nesting while it lives.
  class Nested {
   public:
    explicit Nested(ExpressionParser& parser);
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    ExpressionParser& parser_;
  };

 private:
  using Parse = ExprPtr (ExpressionParser::*)();

  ExprPtr make(Expr::Kind kind);
  ExprPtr literal(Value value);
  ExprPtr joined(Expr::Kind kind, std::string_view name, Parse part);
  ExprPtr any_of();
  ExprPtr all_of();
  ExprPtr negation();
  ExprPtr comparison();
  bool comparison_operator(Operator& op);
  ExprPtr sum();
  ExprPtr concatenation();
  ExprPtr product();
  ExprPtr power();
  ExprPtr arithmetic(Parse part, const std::vector<std::pair<std::string_view, Operator>>& ops);
  ExprPtr unary();
  ExprPtr signed_operand(bool with_filters);
  ExprPtr primary();
  ExprPtr number();
  ExprPtr bracketed();
  ExprPtr list();
  ExprPtr dict();
  void postfix(Expr& expr);
  void filters_and_tests(Expr& expr);
  Step subscript();
  Step filter();
  Step test();
  Arguments arguments();

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int nesting_ = 0;
  std::string error_;
};

}  // namespace baton::jinja
