#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"

namespace baton::jinja {

enum class TokenKind {
  data,            // text between tags
  variable_begin,  // {{
  variable_end,    // }}
  block_begin,     // {%
  block_end,       // %}
  name,
  string,   // `text` is the value, escapes resolved
  integer,  // `text` is as written, without underscores
  real,
  op,   // `text` is the operator
  end,  // of the template
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  int line = 1;
};

// Cuts a template into tokens, with trim_blocks and lstrip_blocks on, comments and the white space
// that tags strip gone, line ends made "\n" and one line end at the very end dropped. Error
// bad_model, with the line.
Result<std::vector<Token>> tokenize(std::string_view source);

// "chat template, line 3: ..."
std::string at_line(int line, std::string_view what);

}  // namespace baton::jinja
