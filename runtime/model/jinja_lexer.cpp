#include "runtime/model/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "runtime/base/utf8.h"
#include "runtime/model/jinja_text.h"

namespace baton::jinja {
namespace {

// Longest first.
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

// Offset behind the last character of `text` that is not white space.
std::size_t stripped_size(std::string_view text) {
  return stripped(Text(std::string(text), false), kWhiteSpace, false, true).size();
}

std::optional<int> hex_value(std::string_view digits) {
  int value = 0;
  for (const char c : digits) {
    const int digit = is_digit(c)              ? c - '0'
                      : (c >= 'a' && c <= 'f') ? c - 'a' + 10
                      : (c >= 'A' && c <= 'F') ? c - 'A' + 10
                                               : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return value;
}

// Walks a template once. After the first failure every step returns false and `error_` is set.
class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      if (!text_and_tag()) return Error{ErrorCode::bad_model, error_};
    }
    tokens_.push_back({TokenKind::end, "", line_});
    return std::move(tokens_);
  }

 private:
  bool fail(const std::string& what) {
    error_ = at_line(line_, what);
    return false;
  }

  std::string_view rest() const { return std::string_view(source_).substr(at_); }

  void advance(std::size_t size) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(at_ + size),
                                         '\n'));
    at_ += size;
  }

  // Where the next tag begins: at "{{", "{%" or "{#".
  std::size_t next_tag() const {
    for (std::size_t at = at_; (at = source_.find('{', at)) != std::string::npos; ++at) {
      if (at + 1 < source_.size() &&
          std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos) {
        return at;
      }
    }
    return std::string::npos;
  }

  bool text_and_tag() {
    const std::size_t tag = next_tag();
    if (tag == std::string::npos) {
      add_data(rest());
      advance(rest().size());
      return true;
    }
    const char kind = source_[tag + 1];
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const std::string_view text = rest().substr(0, tag - at_);
    add_data(text.substr(0, kept(text, kind, sign)));
    advance(text.size());
    const bool signed_tag = sign == '-' || sign == '+';
    advance(signed_tag ? 3 : 2);
    if (kind == '#') return comment();
    if (kind == '{') {
      tokens_.push_back({TokenKind::variable_begin, "", line_});
      return inside("}}", TokenKind::variable_end);
    }
    if (const std::optional<std::size_t> body = raw_begin()) return raw(*body);
    tokens_.push_back({TokenKind::block_begin, "", line_});
    return inside("%}", TokenKind::block_end);
  }

  // Bytes of the text in front of a tag that stay.
  std::size_t kept(std::string_view text, char kind, char sign) const {
    if (sign == '-') return stripped_size(text);
    if (sign == '+' || kind == '{') return text.size();
    const std::size_t line = text.rfind('\n') + 1;  // npos + 1 is 0
    if (line == 0 && !line_starting_) return text.size();
    return stripped_size(text.substr(line)) == 0 ? line : text.size();
  }

  void add_data(std::string_view text) {
    if (!text.empty()) tokens_.push_back({TokenKind::data, std::string(text), line_});
  }

  // Behind a tag's end: what the sign and trim_blocks take away.
  void after_tag(bool strip, bool trim) {
    const std::size_t start = at_;
    if (strip) {
      std::size_t end = at_;
      while (end < source_.size()) {
        std::size_t next = end;
        if (!is_space(next_code_point(source_, next))) break;
        end = next;
      }
      advance(end - at_);
    } else if (trim && rest().starts_with('\n')) {
      advance(1);
    }
    line_starting_ = at_ > start && source_[at_ - 1] == '\n';
  }

  bool comment() {
    const std::size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return fail("a comment that is not closed; expected '#}'");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    advance(end + 2 - at_);
    after_tag(sign == '-', sign != '+');
    return true;
  }

  // If a raw block begins here (behind "{%"), the offset behind its tag's "%}".
  std::optional<std::size_t> raw_begin() const {
    std::size_t at = at_;
    skip_spaces(at);
    if (source_.compare(at, 3, "raw") != 0) return std::nullopt;
    at += 3;
    skip_spaces(at);
    if (source_.compare(at, 1, "-") == 0) ++at;
    return source_.compare(at, 2, "%}") == 0 ? std::optional(at + 2) : std::nullopt;
  }

  void skip_spaces(std::size_t& at) const {
    while (at < source_.size() &&
           std::string_view(" \t\n").find(source_[at]) != std::string::npos) {
      ++at;
    }
  }

  bool raw(std::size_t body) {
    const bool strip_first = source_[body - 3] == '-';
    advance(body - at_);
    after_tag(strip_first, false);
    for (std::size_t at = at_; (at = source_.find("{%", at)) != std::string::npos; at += 2) {
      std::size_t end = at + 2;
      const char sign = end < source_.size() ? source_[end] : '\0';
      if (sign == '-' || sign == '+') ++end;
      skip_spaces(end);
      if (source_.compare(end, 6, "endraw") != 0) continue;
      end += 6;
      skip_spaces(end);
      const char last = end < source_.size() ? source_[end] : '\0';
      if (last == '-' || last == '+') ++end;
      if (source_.compare(end, 2, "%}") != 0) continue;
      const std::string_view text = rest().substr(0, at - at_);
      add_data(text.substr(0, kept(text, '%', sign)));
      advance(end + 2 - at_);
      after_tag(last == '-', last != '+');
      return true;
    }
    return fail("a raw block that is not closed; expected '{% endraw %}'");
  }

  // The tokens of a tag up to its end.
  bool inside(std::string_view closing, TokenKind end_kind) {
    std::string open;  // brackets that are open: tags end only outside them
    for (;;) {
      std::size_t at = at_;
      skip_spaces(at);
      advance(at - at_);
      if (at_ >= source_.size()) {
        return fail(fmt::format("a tag that is not closed; expected '{}'", closing));
      }
      const bool has_sign = rest()[0] == '-' || rest()[0] == '+';
      const std::string_view unsigned_rest = rest().substr(has_sign ? 1 : 0);
      if (open.empty() && unsigned_rest.starts_with(closing)) {
        const bool plus = has_sign && rest()[0] == '+';
        if (!(plus && end_kind == TokenKind::variable_end)) {
          const bool minus = has_sign && !plus;
          tokens_.push_back({end_kind, "", line_});
          advance(closing.size() + (has_sign ? 1 : 0));
          after_tag(minus, !plus && end_kind == TokenKind::block_end);
          return true;
        }
      }
      if (!token(open)) return false;
    }
  }

  bool token(std::string& open) {
    const char c = rest()[0];
    if (is_digit(c)) return number();
    if (is_name_start(c)) {
      std::size_t size = 1;
      while (size < rest().size() && is_name_part(rest()[size])) ++size;
      tokens_.push_back({TokenKind::name, std::string(rest().substr(0, size)), line_});
      advance(size);
      return true;
    }
    if (c == '"' || c == '\'') return string(c);
    for (const std::string_view op : kOperators) {
      if (!rest().starts_with(op)) continue;
      if (!bracket(op[0], open)) return false;
      tokens_.push_back({TokenKind::op, std::string(op), line_});
      advance(op.size());
      return true;
    }
    return fail(fmt::format("the character {:#04x} in a tag; expected an expression",
                            static_cast<unsigned char>(c)));
  }

  bool bracket(char c, std::string& open) {
    constexpr std::string_view kOpening = "([{", kClosing = ")]}";
    if (const std::size_t i = kOpening.find(c); i != std::string_view::npos) open += kClosing[i];
    if (kClosing.find(c) == std::string_view::npos) return true;
    if (open.empty()) return fail(fmt::format("'{}' without an opening bracket", c));
    if (open.back() != c) return fail(fmt::format("'{}'; expected '{}'", c, open.back()));
    open.pop_back();
    return true;
  }

  bool number() {
    const std::string_view text = rest();
    std::string digits;
    std::size_t size = 0;
    const auto take_digits = [&] {
      while (size < text.size() && (is_digit(text[size]) || text[size] == '_')) {
        if (text[size] != '_') digits += text[size];
        ++size;
      }
    };
    take_digits();
    bool real = false;
    // "1.5" is a number, "1.x" and "1..2" are not.
    if (size + 1 < text.size() && text[size] == '.' && is_digit(text[size + 1])) {
      real = true;
      digits += text[size++];
      take_digits();
    }
    if (size < text.size() && (text[size] == 'e' || text[size] == 'E')) {
      std::size_t exponent = size + 1;
      if (exponent < text.size() && (text[exponent] == '-' || text[exponent] == '+')) ++exponent;
      if (exponent < text.size() && is_digit(text[exponent])) {
        real = true;
        digits += text.substr(size, exponent - size);
        size = exponent;
        take_digits();
      }
    }
    tokens_.push_back({real ? TokenKind::real : TokenKind::integer, std::move(digits), line_});
    advance(size);
    return true;
  }

  bool string(char quote) {
    const int start_line = line_;
    std::string value;
    std::size_t at = at_ + 1;
    for (;;) {
      if (at >= source_.size()) return fail("a string that is not closed");
      const char c = source_[at];
      if (c == quote) break;
      if (c != '\\') {
        value += c;
        ++at;
        continue;
      }
      if (!escape(at, value)) return false;
    }
    advance(at + 1 - at_);
    tokens_.push_back({TokenKind::string, std::move(value), start_line});
    return true;
  }

  // One escape sequence as Python has it; `at` moves past it.
  bool escape(std::size_t& at, std::string& value) {
    const char c = at + 1 < source_.size() ? source_[at + 1] : '\0';
    at += 2;
    constexpr std::string_view kNames = "abfnrtv\\'\"", kValues = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t i = kNames.find(c); c != '\0' && i != std::string_view::npos) {
      value += kValues[i];
      return true;
    }
    if (c == '\n') return true;
    if (c >= '0' && c <= '7') {
      int code = c - '0';
      for (int n = 0; n < 2 && at < source_.size() && source_[at] >= '0' && source_[at] <= '7';
           ++n) {
        code = code * 8 + (source_[at++] - '0');
      }
      append_utf8(value, static_cast<char32_t>(code));
      return true;
    }
    const std::size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits == 0) {  // an unknown escape stays as it is
      value += '\\';
      --at;
      return true;
    }
    const std::string_view hex =
        std::string_view(source_).substr(std::min(at, source_.size()), digits);
    const std::optional<int> code = hex.size() == digits && (digits < 8 || hex.starts_with("00"))
                                        ? hex_value(hex)
                                        : std::nullopt;
    if (!code || *code > 0x10FFFF || (*code >= 0xD800 && *code <= 0xDFFF)) {
      return fail("an escape sequence that names no character");
    }
    append_utf8(value, static_cast<char32_t>(*code));
    at += digits;
    return true;
  }

  std::string source_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag's end was at the end of a line, or there was none yet
  std::vector<Token> tokens_;
  std::string error_;
};

}  // namespace

std::string at_line(int line, std::string_view what) {
  return fmt::format("chat template, line {}: {}", line, what);
}

Result<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(normalized(source)).run();
}

}  // namespace baton::jinja
