#include "runtime/model/jinja_value.h"

#include <algorithm>
#include <limits>

namespace baton::jinja {
namespace {

constexpr std::string_view kRoles[] = {"system",    "developer",    "user",    "assistant",
                                       "tool",      "function",     "ipython", "model",
                                       "tool_call", "tool_response"};

int sign_of(int comparison) {
  return comparison < 0 ? -1 : comparison > 0 ? 1 : 0;
}

bool lists_equal(const List& a, const List& b) {
  return a.is_tuple == b.is_tuple &&
         std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(), equal);
}

bool dicts_equal(const Dict& a, const Dict& b) {
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& item) {
    const Value* other = find(b, item.first);
    return other != nullptr && equal(item.second, *other);
  });
}

std::optional<int> compare_lists(const List& a, const List& b) {
  for (std::size_t i = 0; i < a.items.size() && i < b.items.size(); ++i) {
    if (!equal(a.items[i], b.items[i])) return compare(a.items[i], b.items[i]);
  }
  return a.items.size() < b.items.size() ? -1 : a.items.size() > b.items.size() ? 1 : 0;
}

// The extent of a container, grown by one thing in it.
void add_extent(Extent& whole, const Value& part) {
  const Extent extent = extent_of(part);
  if (__builtin_add_overflow(whole.weight, extent.weight, &whole.weight)) {
    whole.weight = std::numeric_limits<std::uint64_t>::max();
  }
  whole.depth = std::max(whole.depth, extent.depth + 1);
}

std::shared_ptr<const Dict> finished(Dict dict) {
  dict.extent.depth = 1;
  for (const auto& [key, value] : dict.items) {
    add_extent(dict.extent, key);
    add_extent(dict.extent, value);
  }
  return std::make_shared<const Dict>(std::move(dict));
}

}  // namespace

Value make_text(Text text) {
  return std::make_shared<const Text>(std::move(text));
}

Value make_text(std::string bytes, bool content) {
  return make_text(Text(std::move(bytes), content));
}

Value make_list(std::vector<Value> items, bool is_tuple) {
  List list{std::move(items), is_tuple, {16, 1}};
  for (const Value& item : list.items) add_extent(list.extent, item);
  return std::make_shared<const List>(std::move(list));
}

Value make_dict(std::vector<std::pair<Value, Value>> items) {
  Dict dict;
  for (auto& item : items) {
    const auto known = std::find_if(dict.items.begin(), dict.items.end(), [&](const auto& other) {
      return equal(other.first, item.first);
    });
    if (known != dict.items.end()) {
      known->second = std::move(item.second);
    } else {
      dict.items.push_back(std::move(item));
    }
  }
  return finished(std::move(dict));
}

Extent extent_of(const Value& value) {
  if (const Text* text = as_text(value)) return {16 + text->size(), 0};
  if (const List* list = as_list(value)) return list->extent;
  if (const Dict* dict = as_dict(value)) return dict->extent;
  if (const auto* method = std::get_if<std::shared_ptr<const Method>>(&value)) {
    Extent extent = extent_of((*method)->self);
    ++extent.depth;
    return extent;
  }
  return {};
}

const Text* as_text(const Value& value) {
  const auto* found = std::get_if<std::shared_ptr<const Text>>(&value);
  return found == nullptr ? nullptr : found->get();
}

const List* as_list(const Value& value) {
  const auto* found = std::get_if<std::shared_ptr<const List>>(&value);
  return found == nullptr ? nullptr : found->get();
}

const Dict* as_dict(const Value& value) {
  const auto* found = std::get_if<std::shared_ptr<const Dict>>(&value);
  return found == nullptr ? nullptr : found->get();
}

bool is_undefined(const Value& value) {
  return std::holds_alternative<Undefined>(value);
}
bool is_none(const Value& value) {
  return std::holds_alternative<None>(value);
}

std::optional<std::int64_t> as_integer(const Value& value) {
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return *whole;
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? 1 : 0;
  return std::nullopt;
}

std::optional<double> as_number(const Value& value) {
  if (const auto* real = std::get_if<double>(&value)) return *real;
  if (const auto whole = as_integer(value)) return static_cast<double>(*whole);
  return std::nullopt;
}

bool truthy(const Value& value) {
  if (is_undefined(value) || is_none(value)) return false;
  if (const auto number = as_number(value)) return *number != 0;
  if (const Text* text = as_text(value)) return !text->empty();
  if (const List* list = as_list(value)) return !list->items.empty();
  if (const Dict* dict = as_dict(value)) return !dict->items.empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (const auto x = as_integer(a), y = as_integer(b); x && y) return *x == *y;
  if (const auto x = as_number(a), y = as_number(b); x && y) return *x == *y;
  if (a.index() != b.index()) return false;
  if (is_undefined(a) || is_none(a)) return true;
  if (const Text* text = as_text(a)) return text->bytes() == as_text(b)->bytes();
  if (const List* list = as_list(a)) return lists_equal(*list, *as_list(b));
  if (const Dict* dict = as_dict(a)) return dicts_equal(*dict, *as_dict(b));
  if (const auto* space = std::get_if<Namespace*>(&a)) return *space == std::get<Namespace*>(b);
  if (const auto* loop = std::get_if<const Loop*>(&a)) return *loop == std::get<const Loop*>(b);
  if (const auto* macro = std::get_if<const Macro*>(&a)) return *macro == std::get<const Macro*>(b);
  if (const auto* builtin = std::get_if<Builtin>(&a)) return *builtin == std::get<Builtin>(b);
  return false;
}

std::optional<int> compare(const Value& a, const Value& b) {
  if (const auto x = as_integer(a), y = as_integer(b); x && y) return *x < *y ? -1 : *x > *y;
  if (const auto x = as_number(a), y = as_number(b); x && y) return *x < *y ? -1 : *x > *y;
  const Text *s = as_text(a), *t = as_text(b);
  // UTF-8 sorts as its code points do.
  if (s != nullptr && t != nullptr) return sign_of(s->bytes().compare(t->bytes()));
  const List *p = as_list(a), *q = as_list(b);
  if (p != nullptr && q != nullptr && p->is_tuple == q->is_tuple) return compare_lists(*p, *q);
  return std::nullopt;
}

const Value* find(const Dict& dict, const Value& key) {
  for (const auto& [known, value] : dict.items) {
    if (equal(known, key)) return &value;
  }
  return nullptr;
}

const Value* find(const Dict& dict, std::string_view key) {
  for (const auto& [known, value] : dict.items) {
    const Text* text = as_text(known);
    if (text != nullptr && text->view() == key) return &value;
  }
  return nullptr;
}

const char* type_name(const Value& value) {
  constexpr const char* kNames[] = {"undefined", "None",   "bool",    "int",       "float",
                                    "str",       "list",   "dict",    "namespace", "loop",
                                    "macro",     "method", "function"};
  if (const List* list = as_list(value); list != nullptr && list->is_tuple) return "tuple";
  return kNames[value.index()];
}

Value from_request(const Json& json) {
  if (json.is_null()) return None{};
  if (json.is_bool()) return json.as_bool();
  if (json.is_integer()) return json.as_integer();
  if (json.is_real()) return json.as_number();
  if (json.is_string()) return make_text(json.as_string(), true);
  if (json.is_array()) {
    std::vector<Value> items;
    for (const Json& item : json.as_array()) items.push_back(from_request(item));
    return make_list(std::move(items));
  }
  Dict dict;  // the reader of JSON has seen to it that names differ
  for (const Json::Member& member : json.as_object()) {
    Value value = from_request(member.value);
    const Text* role = member.name == "role" ? as_text(value) : nullptr;
    if (role != nullptr &&
        std::find(std::begin(kRoles), std::end(kRoles), role->view()) != std::end(kRoles)) {
      value = make_text(role->bytes(), false);
    }
    dict.items.emplace_back(make_text(member.name, true), std::move(value));
  }
  return finished(std::move(dict));
}

}  // namespace baton::jinja
