#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>

#include "runtime/base/utf8.h"
#include "runtime/model/jinja_value.h"

namespace baton::jinja {
namespace {

// Calls `each` for the characters of a text, with where they came from.
template <class Each>
void for_characters(const Text& text, Each each) {
  std::size_t at = 0;
  for (const Text::Run& run : text.runs()) {
    while (at < run.end) {
      const std::size_t start = at;
      const char32_t c = next_code_point(text.view(), at);
      each(c, text.view().substr(start, at - start), run.content);
    }
  }
}

// As str.isprintable() has it: no control, format, private, unassigned or separating character.
bool is_printable(char32_t character) {
  if (character == ' ') return true;
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return category != UTF8PROC_CATEGORY_CN && category < UTF8PROC_CATEGORY_ZS;
}

void append_text_repr(Text& out, const Text& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.append({&quote, 1}, false);
  for_characters(text, [&](char32_t c, std::string_view bytes, bool content) {
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.append("\\", false);
      out.append(bytes, content);
    } else if (c == '\n') {
      out.append("\\n", false);
    } else if (c == '\r') {
      out.append("\\r", false);
    } else if (c == '\t') {
      out.append("\\t", false);
    } else if (!is_printable(c)) {
      const auto code = static_cast<unsigned>(c);
      out.append(code < 0x100     ? fmt::format("\\x{:02x}", code)
                 : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                                  : fmt::format("\\U{:08x}", code),
                 false);
    } else {
      out.append(bytes, content);
    }
  });
  out.append({&quote, 1}, false);
}

void append_items(Text& out, const List& list) {
  out.append(list.is_tuple ? "(" : "[", false);
  for (std::size_t i = 0; i < list.items.size(); ++i) {
    if (i != 0) out.append(", ", false);
    append_repr(out, list.items[i]);
  }
  if (list.is_tuple && list.items.size() == 1) out.append(",", false);
  out.append(list.is_tuple ? ")" : "]", false);
}

void append_pairs(Text& out, const Dict& dict) {
  out.append("{", false);
  for (std::size_t i = 0; i < dict.items.size(); ++i) {
    if (i != 0) out.append(", ", false);
    append_repr(out, dict.items[i].first);
    out.append(": ", false);
    append_repr(out, dict.items[i].second);
  }
  out.append("}", false);
}

void append_json_text(Text& out, const Text& text, bool ascii) {
  out.append("\"", false);
  for_characters(text, [&](char32_t c, std::string_view bytes, bool content) {
    constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f", kLetters = "\"\\nrtbf";
    const std::size_t i = c < 0x80 ? kEscaped.find(static_cast<char>(c)) : std::string_view::npos;
    if (i != std::string_view::npos) {
      out.append("\\", content);
      out.append(kLetters.substr(i, 1), content);
    } else if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000 && c != 0x7F)) {
      out.append(fmt::format("\\u{:04x}", static_cast<unsigned>(c)), content);
    } else if (ascii && c >= 0x10000) {
      const unsigned rest = static_cast<unsigned>(c) - 0x10000;
      out.append(fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF)),
                 content);
    } else {
      out.append(bytes, content);
    }
  });
  out.append("\"", false);
}

// Writes json.dumps(value); `level` is the nesting, for the indent.
class JsonWriter {
 public:
  JsonWriter(Text& out, const JsonStyle& style) : out_(out), style_(style) {}

  bool write(const Value& value, int level) {
    if (is_none(value)) return put("null");
    if (const auto* flag = std::get_if<bool>(&value)) return put(*flag ? "true" : "false");
    if (const auto* whole = std::get_if<std::int64_t>(&value)) return put(std::to_string(*whole));
    if (const auto* real = std::get_if<double>(&value)) return put(json_real(*real));
    if (const Text* text = as_text(value)) {
      append_json_text(out_, *text, style_.ascii);
      return true;
    }
    if (const List* list = as_list(value)) return write_list(*list, level);
    if (const Dict* dict = as_dict(value)) return write_dict(*dict, level);
    return false;
  }

 private:
  bool put(std::string_view text) {
    out_.append(text, false);
    return true;
  }

  static std::string json_real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return real_repr(value);
  }

  void line(int level) {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < level; ++i) put(*style_.indent);
  }

  // With an indent json.dumps drops the space behind the comma unless separators are given.
  void separator(std::size_t i) {
    if (i == 0) return;
    put(style_.indent && style_.item_separator == ", " ? "," : style_.item_separator);
  }

  bool write_list(const List& list, int level) {
    if (list.items.empty()) return put("[]");
    put("[");
    for (std::size_t i = 0; i < list.items.size(); ++i) {
      separator(i);
      line(level + 1);
      if (!write(list.items[i], level + 1)) return false;
    }
    line(level);
    return put("]");
  }

  bool write_key(const Value& key) {
    if (const Text* text = as_text(key)) {
      append_json_text(out_, *text, style_.ascii);
      return true;
    }
    if (as_list(key) != nullptr || as_dict(key) != nullptr) return false;
    put("\"");
    return write(key, 0) && put("\"");
  }

  bool write_dict(const Dict& dict, int level) {
    if (dict.items.empty()) return put("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        return compare(a->first, b->first).value_or(0) < 0;
      });
    }
    put("{");
    for (std::size_t i = 0; i < items.size(); ++i) {
      separator(i);
      line(level + 1);
      if (!write_key(items[i]->first)) return false;
      put(style_.key_separator);
      if (!write(items[i]->second, level + 1)) return false;
    }
    line(level);
    return put("}");
  }

  Text& out_;
  const JsonStyle& style_;
};

}  // namespace

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string digits = fmt::format("{}", value);
  if (digits.find_first_of(".e") == std::string::npos) digits += ".0";
  return digits;
}

void append_str(Text& out, const Value& value) {
  if (is_undefined(value)) return;
  if (const Text* text = as_text(value)) {
    out.append(*text);
  } else {
    append_repr(out, value);
  }
}

void append_repr(Text& out, const Value& value) {
  if (is_undefined(value)) {
    out.append("Undefined", false);
  } else if (is_none(value)) {
    out.append("None", false);
  } else if (const auto* flag = std::get_if<bool>(&value)) {
    out.append(*flag ? "True" : "False", false);
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    out.append(std::to_string(*whole), false);
  } else if (const auto* real = std::get_if<double>(&value)) {
    out.append(real_repr(*real), false);
  } else if (const Text* text = as_text(value)) {
    append_text_repr(out, *text);
  } else if (const List* list = as_list(value)) {
    append_items(out, *list);
  } else if (const Dict* dict = as_dict(value)) {
    append_pairs(out, *dict);
  } else {
    out.append(fmt::format("<{}>", type_name(value)), false);
  }
}

Text str(const Value& value) {
  Text out;
  append_str(out, value);
  return out;
}

bool append_json(Text& out, const Value& value, const JsonStyle& style) {
  return JsonWriter(out, style).write(value, 0);
}

}  // namespace baton::jinja
