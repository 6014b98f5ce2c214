#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/result.h"

namespace baton {

// A JSON value that keeps the order of object members. Plain data: copyable, no sharing.
// Accessors that name a type CHECK it; `find` and the `is_` family are for looking first.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json();
  Json(std::nullptr_t);          // NOLINT(runtime/explicit): a Json is made of any of these
  Json(bool value);              // NOLINT
  Json(int value);               // NOLINT
  Json(std::int64_t value);      // NOLINT
  Json(double value);            // NOLINT
  Json(const char* value);       // NOLINT
  Json(std::string value);       // NOLINT
  Json(std::string_view value);  // NOLINT
  Json(Array value);             // NOLINT
  Json(Object value);            // NOLINT
  Json(const Json&);
  Json(Json&&) noexcept;
  Json& operator=(const Json&);
  Json& operator=(Json&&) noexcept;
  ~Json();
  static Json array();
  static Json object();

  bool is_null() const { return value_.index() == 0; }
  bool is_bool() const { return value_.index() == 1; }
  bool is_integer() const {
    return value_.index() == 2;
  }                                                     // written without point or exponent, fits
  bool is_real() const { return value_.index() == 3; }  // any other number
  bool is_number() const { return is_integer() || is_real(); }
  bool is_string() const { return value_.index() == 4; }
  bool is_array() const { return value_.index() == 5; }
  bool is_object() const { return value_.index() == 6; }
  const char* type_name() const;  // "null", "boolean", "number", "string", "array" or "object"

  bool as_bool() const;
  std::int64_t as_integer() const;
  double as_number() const;  // of an integer or a real
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  // The member of that name, or null when there is none or this is no object. O(members).
  const Json* find(std::string_view name) const;
  // Sets a member of an object (last position if new). Precondition: this is an object.
  void set(std::string_view name, Json value);
  void push_back(Json value);  // precondition: this is an array

  friend bool operator==(const Json& a, const Json& b);

 private:
  std::variant<std::monostate, bool, std::int64_t, double, std::string, Array, Object> value_;
};

// Complete only here: what needs it is defined in json_value.cpp.
struct Json::Member {
  std::string name;
  Json value;
};

struct JsonLimits {
  std::size_t bytes_max = 10u << 20;
  std::size_t values_max = 1'000'000;  // arrays, objects and scalars together
  int depth_max = 64;                  // [] has depth 1
};

// Reads one JSON text strictly: no byte order mark, trailing text, NaN, comments, duplicate names,
// ill-formed UTF-8 or lone surrogates; numbers must be finite. Errors are invalid_argument and say
// the byte offset. No recursion, and nothing is built beyond the limits. Thread-safe.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Compact JSON. Ill-formed UTF-8 becomes U+FFFD, a number that is not finite null. Thread-safe.
std::string write_json(const Json& value);
// Appends a quoted and escaped JSON string, as write_json would.
void append_json_string(std::string& out, std::string_view text);

}  // namespace baton
