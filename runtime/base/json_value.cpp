#include <fmt/format.h>

#include <cmath>

#include "runtime/base/check.h"
#include "runtime/base/json.h"
#include "runtime/base/utf8.h"

namespace baton {
namespace {

void append_value(std::string& out, const Json& value) {
  if (value.is_null()) {
    out += "null";
  } else if (value.is_bool()) {
    out += value.as_bool() ? "true" : "false";
  } else if (value.is_integer()) {
    out += std::to_string(value.as_integer());
  } else if (value.is_real()) {
    const double number = value.as_number();
    if (!std::isfinite(number)) {
      out += "null";
      return;
    }
    const std::string digits = fmt::format("{}", number);
    out += digits;
    // A real stays a real when it is read again.
    if (digits.find_first_of(".e") == std::string::npos) out += ".0";
  } else if (value.is_string()) {
    append_json_string(out, value.as_string());
  } else if (value.is_array()) {
    out += '[';
    const char* separator = "";
    for (const Json& element : value.as_array()) {
      out += separator;
      append_value(out, element);
      separator = ",";
    }
    out += ']';
  } else {
    out += '{';
    const char* separator = "";
    for (const Json::Member& member : value.as_object()) {
      out += separator;
      append_json_string(out, member.name);
      out += ':';
      append_value(out, member.value);
      separator = ",";
    }
    out += '}';
  }
}

}  // namespace

Json::Json() = default;
Json::Json(std::nullptr_t) {}
Json::Json(bool value) : value_(value) {}
Json::Json(int value) : value_(std::int64_t{value}) {}
Json::Json(std::int64_t value) : value_(value) {}
Json::Json(double value) : value_(value) {}
Json::Json(const char* value) : value_(std::string(value)) {}
Json::Json(std::string value) : value_(std::move(value)) {}
Json::Json(std::string_view value) : value_(std::string(value)) {}
Json::Json(Array value) : value_(std::move(value)) {}
Json::Json(Object value) : value_(std::move(value)) {}
Json::Json(const Json&) = default;
Json::Json(Json&&) noexcept = default;
Json& Json::operator=(const Json&) = default;
Json& Json::operator=(Json&&) noexcept = default;
Json::~Json() = default;
Json Json::array() {
  return Json(Array());
}
Json Json::object() {
  return Json(Object());
}

const char* Json::type_name() const {
  constexpr const char* kNames[] = {"null",   "boolean", "number", "number",
                                    "string", "array",   "object"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  CHECK(is_bool());
  return std::get<bool>(value_);
}

std::int64_t Json::as_integer() const {
  CHECK(is_integer());
  return std::get<std::int64_t>(value_);
}

double Json::as_number() const {
  CHECK(is_number());
  return is_integer() ? static_cast<double>(std::get<std::int64_t>(value_))
                      : std::get<double>(value_);
}

const std::string& Json::as_string() const {
  CHECK(is_string());
  return std::get<std::string>(value_);
}

const Json::Array& Json::as_array() const {
  CHECK(is_array());
  return std::get<Array>(value_);
}

Json::Array& Json::as_array() {
  CHECK(is_array());
  return std::get<Array>(value_);
}

const Json::Object& Json::as_object() const {
  CHECK(is_object());
  return std::get<Object>(value_);
}

Json::Object& Json::as_object() {
  CHECK(is_object());
  return std::get<Object>(value_);
}

const Json* Json::find(std::string_view name) const {
  if (!is_object()) return nullptr;
  for (const Member& member : as_object()) {
    if (member.name == name) return &member.value;
  }
  return nullptr;
}

void Json::set(std::string_view name, Json value) {
  for (Member& member : as_object()) {
    if (member.name != name) continue;
    member.value = std::move(value);
    return;
  }
  as_object().push_back({std::string(name), std::move(value)});
}

void Json::push_back(Json value) {
  as_array().push_back(std::move(value));
}

bool operator==(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
    return a.as_number() == b.as_number();
  }
  if (a.value_.index() != b.value_.index()) return false;
  if (a.is_null()) return true;
  if (a.is_bool()) return a.as_bool() == b.as_bool();
  if (a.is_string()) return a.as_string() == b.as_string();
  if (a.is_array()) return a.as_array() == b.as_array();
  if (a.as_object().size() != b.as_object().size()) return false;
  for (const Json::Member& member : a.as_object()) {  // members count in any order
    const Json* other = b.find(member.name);
    if (other == nullptr || !(member.value == *other)) return false;
  }
  return true;
}

std::string write_json(const Json& value) {
  std::string out;
  append_value(out, value);
  return out;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    for (const char c : text.substr(0, valid)) {
      const auto byte = static_cast<unsigned char>(c);
      if (c == '"' || c == '\\') {
        out += '\\';
        out += c;
      } else if (c == '\n') {
        out += "\\n";
      } else if (c == '\r') {
        out += "\\r";
      } else if (c == '\t') {
        out += "\\t";
      } else if (byte < 0x20 || byte == 0x7F) {
        out += fmt::format("\\u{:04x}", byte);
      } else {
        out += c;
      }
    }
    text.remove_prefix(valid);
    if (text.empty()) break;
    out += "\xEF\xBF\xBD";  // for each byte that is not UTF-8
    text.remove_prefix(1);
  }
  out += '"';
}

}  // namespace baton
