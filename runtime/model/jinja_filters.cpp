#include "runtime/model/jinja_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/model/jinja_sequence_filters.h"

namespace baton::jinja {
namespace {

using Filter = Value (*)(Run&, const Value&, const CallArguments&);

std::int64_t integer_or(Run& run, const Value* value, std::int64_t fallback) {
  if (value == nullptr) return fallback;
  const std::optional<std::int64_t> found = as_integer(*value);
  if (!found) run.fail(fmt::format("an integer is wanted, not a {}", type_name(*value)));
  return found.value_or(fallback);
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
  return make_list(run.iterate(value));
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
    {"reject", reject},
    {"rejectattr", reject_by_attribute},
    {"replace", replace},
    {"reverse", reverse},
    {"round", rounded},
    {"safe", safe},
    {"select", select},
    {"selectattr", select_by_attribute},
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
