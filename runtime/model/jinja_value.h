#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/model/jinja_text.h"

namespace baton::jinja {

struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Macro;
struct Method;

struct None {};
// A name or member that is not there; says so when it is used.
struct Undefined {
  std::string why;  // "'x' is undefined"
};
enum class Builtin { range, make_namespace, make_dict, raise_exception, strftime_now };

// A value of a template: what Python would have, without its identity. Lists, dicts and texts never
// change once made, so copies share them (shared_ptr: a copy of a value must be cheap, and nothing
// else could own it); namespaces and loops belong to the run and are only pointed at.
using Value = std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>,
                           std::shared_ptr<const List>, std::shared_ptr<const Dict>, Namespace*,
                           const Loop*, const Macro*, std::shared_ptr<const Method>, Builtin>;

// How large a value is when all it holds is written out, and how deep: both stay bounded, because
// shared parts could otherwise grow without bound in a few steps.
struct Extent {
  std::uint64_t weight = 16;  // 16 per value, and the bytes of texts; saturates
  int depth = 0;              // nesting of lists and dicts
};

struct List {
  std::vector<Value> items;
  bool is_tuple = false;
  Extent extent;
};

struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion; keys differ
  Extent extent;
};

// The one thing a template can change: namespace(a=1), set ns.a = 2.
struct Namespace {
  std::map<std::string, Value, std::less<>> members;
};

// The variable `loop` of a for loop.
struct Loop {
  std::shared_ptr<const List> items;
  std::size_t index = 0;
  int depth = 1;
};

// A method that was looked up but not called yet: message.items
struct Method {
  Value self;
  std::string name;
};

Value make_text(Text text);
Value make_text(std::string bytes, bool content = false);
Value make_list(std::vector<Value> items, bool is_tuple = false);
// Later pairs replace earlier ones of the same key.
Value make_dict(std::vector<std::pair<Value, Value>> items);

Extent extent_of(const Value& value);

const Text* as_text(const Value& value);  // null if it is something else; likewise the next two
const List* as_list(const Value& value);
const Dict* as_dict(const Value& value);
bool is_undefined(const Value& value);
bool is_none(const Value& value);
// An integer, or a boolean as Python counts it.
std::optional<std::int64_t> as_integer(const Value& value);
std::optional<double> as_number(const Value& value);  // an integer, boolean or real

bool truthy(const Value& value);
bool equal(const Value& a, const Value& b);
// -1, 0 or 1; nothing if Python would not compare them.
std::optional<int> compare(const Value& a, const Value& b);
const Value* find(const Dict& dict, const Value& key);
const Value* find(const Dict& dict, std::string_view key);
const char* type_name(const Value& value);  // "str"

void append_str(Text& out, const Value& value);   // str(value); nothing for an undefined one
void append_repr(Text& out, const Value& value);  // repr(value)
Text str(const Value& value);
std::string real_repr(double value);

struct JsonStyle {
  std::optional<std::string> indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  bool ascii = false;
};
// json.dumps(value); false if a part of it has no JSON form.
bool append_json(Text& out, const Value& value, const JsonStyle& style);

// A value from a request: strings and names in it are content, but for well-known role names.
Value from_request(const Json& json);

}  // namespace baton::jinja
