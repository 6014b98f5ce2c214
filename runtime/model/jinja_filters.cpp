#include "runtime/model/jinja_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

namespace baton::jinja {
namespace {

using Filter = Value (*)(Run&, const Value&, const CallArguments&);

// The elements of what a filter works on.
std::vector<Value> elements(Run& run, const Value& value) {
  return run.iterate(value);
}

std::int64_t integer_or(Run& run, const Value* value, std::int64_t fallback) {
  if (value == nullptr) return fallback;
  const std::optional<std::int64_t> found = as_integer(*value);
  if (!found) run.fail(fmt::format("an integer is wanted, not a {}", type_name(*value)));
  return found.value_or(fallback);
}

bool flag_or(const Value* value, bool fallback) {
  return value == nullptr ? fallback : truthy(*value);
}

Value trim(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "trim", args, {"chars"});
  const Text* characters = given[0] == nullptr ? nullptr : as_text(*given[0]);
  return run.text(stripped(run.str(value), characters == nullptr ? kWhiteSpace : characters->view(),
                           true, true));
}

template <Text (*kMap)(const Text&)>
Value map_text(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "the filter", args, {});
  const Text text = run.str(value);
  return run.charge(text.size() / 16) ? run.text(kMap(text)) : Value();
}

Value length(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "length", args, {});
  if (is_undefined(value)) return std::int64_t{0};
  if (const List* list = as_list(value)) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = as_dict(value)) return static_cast<std::int64_t>(dict->items.size());
  const Text* text = as_text(value);
  if (text == nullptr) return run.fail(fmt::format("a {} has no length", type_name(value)));
  if (!run.charge_bytes(text->size())) return Undefined{};
  return static_cast<std::int64_t>(
      std::count_if(text->bytes().begin(), text->bytes().end(),
                    [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

Value default_to(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "default", args, {"default_value", "boolean"});
  const bool replaces = is_undefined(value) || (flag_or(given[1], false) && !truthy(value));
  if (!replaces) return value;
  return given[0] == nullptr ? make_text(Text()) : *given[0];
}

Value join(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "join", args, {"d", "attribute"});
  const Text separator = given[0] == nullptr ? Text() : run.str(*given[0]);
  Text out;
  bool first = true;
  for (const Value& element : elements(run, value)) {
    if (!first) out.append(separator);
    first = false;
    out.append(run.str(given[1] == nullptr ? element : run.path(element, *given[1])));
    if (!run.charge(1 + separator.size() / 256) || out.size() > run.limits().text_bytes_max) break;
  }
  return run.text(std::move(out));
}

Value to_json(Run& run, const Value& value, const CallArguments& args) {
  const auto given =
      bind(run, "tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  // In Jinja itself the first argument is the indent; in chat templates both are in use.
  const Value* indent = given[1];
  JsonStyle style;
  if (given[0] != nullptr) {
    if (std::holds_alternative<std::int64_t>(*given[0])) {
      indent = given[0];
    } else {
      style.ascii = truthy(*given[0]);
    }
  }
  style.sort_keys = flag_or(given[3], false);
  if (indent != nullptr && !is_none(*indent)) {
    if (const Text* text = as_text(*indent)) {
      style.indent = text->bytes();
    } else {
      style.indent = std::string(
          static_cast<std::size_t>(std::clamp<std::int64_t>(integer_or(run, indent, 0), 0, 64)),
          ' ');
    }
  }
  if (const List* pair = given[2] == nullptr ? nullptr : as_list(*given[2])) {
    if (pair->items.size() != 2) return run.fail("tojson() wants two separators");
    style.item_separator = run.str(pair->items[0]).bytes();
    style.key_separator = run.str(pair->items[1]).bytes();
  }
  if (!run.charge_weight(value)) return Undefined{};
  Text out;
  if (!append_json(out, value, style)) return run.fail("a value that has no JSON form");
  return run.text(std::move(out));
}

Value items(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "items", args, {});
  std::vector<Value> pairs;
  if (is_undefined(value)) return make_list({});
  const Dict* dict = as_dict(value);
  if (dict == nullptr) return run.fail(fmt::format("a {} has no items", type_name(value)));
  if (!run.charge(dict->items.size() / 4)) return Undefined{};
  for (const auto& [key, member] : dict->items) pairs.push_back(make_list({key, member}, true));
  return make_list(std::move(pairs));
}

Value to_list(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "list", args, {});
  return make_list(elements(run, value));
}

Value first(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "first", args, {});
  const std::vector<Value> all = elements(run, value);
  return all.empty() ? Value(Undefined{"there is no first item, the sequence is empty"})
                     : all.front();
}

Value last(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "last", args, {});
  const std::vector<Value> all = elements(run, value);
  return all.empty() ? Value(Undefined{"there is no last item, the sequence is empty"})
                     : all.back();
}

Value to_string(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "string", args, {});
  return run.text(run.str(value));
}

std::optional<double> parsed_number(const Text& text) {
  const Text bare = stripped(text, kWhiteSpace, true, true);
  const char* end = bare.bytes().data() + bare.size();
  double number = 0;
  const char* start = bare.bytes().data() + (bare.bytes().starts_with('+') ? 1 : 0);
  const auto [stop, error] = std::from_chars(start, end, number);
  if (error != std::errc() || stop != end || !std::isfinite(number)) return std::nullopt;
  return number;
}

Value to_integer(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "int", args, {"default"});
  const std::int64_t fallback = integer_or(run, given[0], 0);
  if (const auto whole = as_integer(value)) return *whole;
  const Text* text = as_text(value);
  if (text != nullptr && text->size() < 64) {
    const Text bare = stripped(*text, kWhiteSpace, true, true);
    std::int64_t whole = 0;
    const char* end = bare.bytes().data() + bare.size();
    const auto [stop, error] = std::from_chars(bare.bytes().data(), end, whole);
    if (error == std::errc() && stop == end) return whole;
  }
  std::optional<double> number = as_number(value);
  if (text != nullptr && text->size() < 512) number = parsed_number(*text);
  constexpr double kLimit = 9.2e18;
  if (!number || std::abs(*number) > kLimit || std::isnan(*number)) return fallback;
  return static_cast<std::int64_t>(*number);
}

Value to_real(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "float", args, {"default"});
  std::optional<double> number = as_number(value);
  if (const Text* text = as_text(value); text != nullptr && text->size() < 512) {
    number = parsed_number(*text);
  }
  if (number) return *number;
  return given[0] == nullptr ? Value(0.0) : *given[0];
}

Value replace(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "replace", args, {"old", "new", "count"}, 2);
  if (run.failed()) return Undefined{};
  const std::int64_t count =
      given[2] == nullptr || is_none(*given[2]) ? -1 : integer_or(run, given[2], -1);
  const CallArguments method{{make_text(run.str(*given[0])), make_text(run.str(*given[1])), count},
                             {}};
  return call_method(run, make_text(run.str(value)), "replace", method);
}

Value reverse(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "reverse", args, {});
  std::vector<Value> all = elements(run, value);
  std::reverse(all.begin(), all.end());
  if (as_text(value) == nullptr) return make_list(std::move(all));
  Text out;
  for (const Value& character : all) out.append(*as_text(character));
  return run.text(std::move(out));
}

// Sorts by keys, ascending; a failure where two keys cannot be compared.
void sort_by(Run& run, std::vector<std::pair<Value, Value>>& keyed, bool descending) {
  if (!run.charge(keyed.size())) return;
  std::uint64_t weight = 0;
  for (const auto& [key, value] : keyed) weight += extent_of(key).weight;
  if (!run.charge_bytes(weight * 8)) return;
  for (const auto& [key, value] : keyed) {
    // One kind of key throughout, so that the order is a strict one.
    const bool alike = (as_number(key) && as_number(keyed[0].first)) ||
                       (as_text(key) != nullptr && as_text(keyed[0].first) != nullptr);
    if (alike && !(as_number(key) && std::isnan(*as_number(key)))) continue;
    run.fail(
        fmt::format("a {} and a {} cannot be sorted", type_name(keyed[0].first), type_name(key)));
    return;
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    const int order = compare(a.first, b.first).value_or(0);
    return descending ? order > 0 : order < 0;
  });
}

Value sort_key(Run& run, const Value& value, bool case_sensitive) {
  const Text* text = as_text(value);
  return text != nullptr && !case_sensitive && run.charge_bytes(text->size() * 4)
             ? make_text(lower(*text))
             : value;
}

Value sort(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& element : elements(run, value)) {
    const Value key = given[2] == nullptr ? element : run.path(element, *given[2]);
    keyed.emplace_back(sort_key(run, key, flag_or(given[1], false)), std::move(element));
  }
  if (!run.failed() && !keyed.empty()) sort_by(run, keyed, flag_or(given[0], false));
  std::vector<Value> out;
  for (auto& [key, element] : keyed) out.push_back(std::move(element));
  return make_list(std::move(out));
}

Value sort_dict(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "dictsort", args, {"case_sensitive", "by", "reverse"});
  const Dict* dict = as_dict(value);
  if (dict == nullptr)
    return run.fail(fmt::format("dictsort wants a dict, not a {}", type_name(value)));
  const Text* by = given[1] == nullptr ? nullptr : as_text(*given[1]);
  const bool by_value = by != nullptr && by->view() == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, member] : dict->items) {
    keyed.emplace_back(sort_key(run, by_value ? member : key, flag_or(given[0], false)),
                       make_list({key, member}, true));
  }
  if (!run.failed() && !keyed.empty()) sort_by(run, keyed, flag_or(given[2], false));
  std::vector<Value> out;
  for (auto& [key, pair] : keyed) out.push_back(std::move(pair));
  return make_list(std::move(out));
}

Value unique(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "unique", args, {"case_sensitive", "attribute"});
  std::vector<Value> keys, out;
  for (Value& element : elements(run, value)) {
    const Value key = sort_key(run, given[1] == nullptr ? element : run.path(element, *given[1]),
                               flag_or(given[0], false));
    if (!run.charge(keys.size() / 16 + extent_of(key).weight / 256)) break;
    if (std::any_of(keys.begin(), keys.end(),
                    [&](const Value& known) { return equal(known, key); })) {
      continue;
    }
    keys.push_back(key);
    out.push_back(std::move(element));
  }
  return make_list(std::move(out));
}

Value extreme(Run& run, const Value& value, const CallArguments& args, bool largest) {
  const auto given = bind(run, largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  std::optional<Value> best;
  Value best_key;
  for (Value& element : elements(run, value)) {
    const Value key = sort_key(run, given[1] == nullptr ? element : run.path(element, *given[1]),
                               flag_or(given[0], false));
    const std::optional<int> order =
        best ? compare(key, best_key) : std::optional(largest ? 1 : -1);
    if (!order) return run.fail("values that cannot be compared");
    if (largest ? *order <= 0 : *order >= 0) continue;
    best = std::move(element);
    best_key = key;
  }
  return best ? *best : Value(Undefined{"there is no such item, the sequence is empty"});
}

Value minimum(Run& run, const Value& value, const CallArguments& args) {
  return extreme(run, value, args, false);
}

Value maximum(Run& run, const Value& value, const CallArguments& args) {
  return extreme(run, value, args, true);
}

Value sum(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "sum", args, {"attribute", "start"});
  double real = 0;
  std::int64_t whole = 0;
  bool is_whole = true;
  std::vector<Value> all = elements(run, value);
  if (given[1] != nullptr) all.push_back(*given[1]);
  const std::size_t plain = given[1] != nullptr ? all.size() - 1 : all.size();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool by_attribute = given[0] != nullptr && !is_none(*given[0]) && i < plain;
    const Value part = by_attribute ? run.path(all[i], *given[0]) : all[i];
    const std::optional<double> number = as_number(part);
    if (!number) return run.fail(fmt::format("sum cannot add a {}", type_name(part)));
    real += *number;
    is_whole = is_whole && as_integer(part).has_value() &&
               !__builtin_add_overflow(whole, *as_integer(part), &whole);
  }
  return is_whole ? Value(whole) : Value(real);
}

Value indent(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "indent", args, {"width", "first", "blank"});
  Text margin;
  if (const Text* text = given[0] == nullptr ? nullptr : as_text(*given[0])) {
    margin = *text;
  } else {
    const std::int64_t width = std::clamp<std::int64_t>(integer_or(run, given[0], 4), 0, 256);
    margin = Text(std::string(static_cast<std::size_t>(width), ' '), false);
  }
  Text source = run.str(value);
  source.append("\n", false);
  const std::vector<Text> lines = lines_of(source);
  if (!run.charge(lines.size() + lines.size() * (margin.size() / 256))) return Undefined{};
  const bool blank = flag_or(given[2], false);
  Text out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i != 0) out.append("\n", false);
    if (i == 0 ? flag_or(given[1], false) : blank || !lines[i].empty()) out.append(margin);
    out.append(lines[i]);
  }
  return run.text(std::move(out));
}

Value absolute(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "abs", args, {});
  const auto whole = as_integer(value);
  if (whole && *whole != std::numeric_limits<std::int64_t>::min()) return std::abs(*whole);
  if (const auto number = as_number(value)) return std::abs(*number);
  return run.fail(fmt::format("abs wants a number, not a {}", type_name(value)));
}

Value rounded(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "round", args, {"precision", "method"});
  const std::int64_t precision = std::clamp<std::int64_t>(integer_or(run, given[0], 0), -15, 15);
  const Text* method = given[1] == nullptr ? nullptr : as_text(*given[1]);
  const std::optional<double> number = as_number(value);
  if (!number) return run.fail(fmt::format("round wants a number, not a {}", type_name(value)));
  if (const auto whole = as_integer(value); whole && precision >= 0 && method == nullptr) {
    return *whole;
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const std::string_view kind = method == nullptr ? "common" : method->view();
  if (kind == "ceil") return std::ceil(*number * scale) / scale;
  if (kind == "floor") return std::floor(*number * scale) / scale;
  if (kind != "common") return run.fail("round() knows the methods common, ceil and floor");
  if (precision < 0) return std::nearbyint(*number * scale) / scale;
  // Python rounds the exact decimal value, half to even; so does printf.
  return std::strtod(fmt::format("{:.{}f}", *number, precision).c_str(), nullptr);
}

Value safe(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "safe", args, {});
  return value;
}

Value escape(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "escape", args, {});
  Text text = run.str(value);
  constexpr std::pair<std::string_view, std::string_view> kEntities[] = {
      {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [character, entity] : kEntities) {
    if (!run.charge_bytes(text.size() * 8)) return Undefined{};
    text = replaced(text, Text(std::string(character), false), Text(std::string(entity), false),
                    std::string::npos);
  }
  return run.text(std::move(text));
}

CallArguments without_first(const CallArguments& args, std::size_t count) {
  CallArguments rest = args;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
}

Value map(Run& run, const Value& value, const CallArguments& args) {
  std::vector<Value> out;
  if (args.positional.empty()) {
    const auto given = bind(run, "map", args, {"attribute", "default"}, 1);
    if (run.failed()) return Undefined{};
    for (const Value& element : elements(run, value)) {
      Value part = run.path(element, *given[0]);
      if (is_undefined(part) && given[1] != nullptr) part = *given[1];
      if (!run.charge(1)) break;
      out.push_back(std::move(part));
    }
    return make_list(std::move(out));
  }
  const Text* name = as_text(args.positional[0]);
  if (name == nullptr || !is_filter(name->view()))
    return run.fail("map() wants the name of a filter");
  const CallArguments rest = without_first(args, 1);
  for (const Value& element : elements(run, value)) {
    if (!run.charge(1)) break;
    out.push_back(apply_filter(run, name->view(), element, rest));
  }
  return make_list(std::move(out));
}

// select, reject, selectattr, rejectattr: the elements for which a test holds, or does not.
Value chosen(Run& run, const Value& value, const CallArguments& args, bool by_attribute,
             bool keep) {
  const std::size_t named = by_attribute ? 1 : 0;
  if (args.positional.size() < named) return run.fail("the name of an attribute is wanted");
  const Text* test = nullptr;
  if (args.positional.size() > named) {
    test = as_text(args.positional[named]);
    if (test == nullptr || !is_test(test->view())) return run.fail("the name of a test is wanted");
  }
  const CallArguments rest = without_first(args, named + (test == nullptr ? 0 : 1));
  std::vector<Value> out;
  for (const Value& element : elements(run, value)) {
    if (!run.charge(1)) break;
    const Value part = by_attribute ? run.path(element, args.positional[0]) : element;
    const bool holds = test == nullptr ? truthy(part) : apply_test(run, test->view(), part, rest);
    if (holds == keep) out.push_back(element);
  }
  return make_list(std::move(out));
}

template <bool kByAttribute, bool kKeep>
Value choose(Run& run, const Value& value, const CallArguments& args) {
  return chosen(run, value, args, kByAttribute, kKeep);
}

struct Entry {
  std::string_view name;
  Filter filter;
};

constexpr Entry kFilters[] = {
    {"abs", absolute},
    {"capitalize", map_text<capitalized>},
    {"count", length},
    {"d", default_to},
    {"default", default_to},
    {"dictsort", sort_dict},
    {"e", escape},
    {"escape", escape},
    {"first", first},
    {"float", to_real},
    {"indent", indent},
    {"int", to_integer},
    {"items", items},
    {"join", join},
    {"last", last},
    {"length", length},
    {"list", to_list},
    {"lower", map_text<lower>},
    {"map", map},
    {"max", maximum},
    {"min", minimum},
    {"reject", choose<false, false>},
    {"rejectattr", choose<true, false>},
    {"replace", replace},
    {"reverse", reverse},
    {"round", rounded},
    {"safe", safe},
    {"select", choose<false, true>},
    {"selectattr", choose<true, true>},
    {"sort", sort},
    {"string", to_string},
    {"sum", sum},
    {"title", map_text<titled_words>},
    {"tojson", to_json},
    {"trim", trim},
    {"unique", unique},
    {"upper", map_text<upper>},
};

const Entry* find_filter(std::string_view name) {
  const auto* found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                   [&](const Entry& entry) { return entry.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace

bool is_filter(std::string_view name) {
  return find_filter(name) != nullptr;
}

Value apply_filter(Run& run, std::string_view name, const Value& value, const CallArguments& args) {
  if (run.failed()) return Undefined{};
  return find_filter(name)->filter(run, value, args);
}

}  // namespace baton::jinja
