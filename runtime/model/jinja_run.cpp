#include "runtime/model/jinja_run.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/model/jinja_filters.h"
#include "runtime/model/jinja_lexer.h"

namespace baton::jinja {
namespace {

constexpr std::size_t kErrorBytesMax = 512;

std::optional<Value> loop_member(const Loop& loop, std::string_view name) {
  const auto size = static_cast<std::int64_t>(loop.items->items.size());
  const auto index = static_cast<std::int64_t>(loop.index);
  const auto neighbour = [&](std::int64_t at, const char* what) -> Value {
    if (at < 0 || at >= size) return Undefined{fmt::format("there is no {} item", what)};
    return loop.items->items[static_cast<std::size_t>(at)];
  };
  if (name == "index") return index + 1;
  if (name == "index0") return index;
  if (name == "revindex") return size - index;
  if (name == "revindex0") return size - index - 1;
  if (name == "first") return index == 0;
  if (name == "last") return index + 1 == size;
  if (name == "length") return size;
  if (name == "previtem") return neighbour(index - 1, "previous");
  if (name == "nextitem") return neighbour(index + 1, "next");
  if (name == "depth") return std::int64_t{loop.depth};
  if (name == "depth0") return std::int64_t{loop.depth - 1};
  return std::nullopt;
}

}  // namespace

Value Run::fail(std::string_view what) {
  if (error_.empty()) {
    std::string_view shown = what.substr(0, kErrorBytesMax);
    while (!shown.empty() && shown.size() < what.size() &&
           (static_cast<unsigned char>(what[shown.size()]) & 0xC0) == 0x80) {
      shown.remove_suffix(1);  // not within a character
    }
    error_ = at_line(line_, shown);
  }
  return Undefined{};
}

bool Run::charge(std::uint64_t steps) {
  if (failed()) return false;
  steps_ += std::min(steps, limits_.steps_max + 1);
  if (steps_ <= limits_.steps_max) return true;
  fail(fmt::format("rendering takes more than {} steps", limits_.steps_max));
  return false;
}

Value Run::text(Text text) {
  if (!charge_bytes(text.size())) return Undefined{};
  if (text.size() > limits_.text_bytes_max) {
    return fail(fmt::format("a text of more than {} bytes", limits_.text_bytes_max));
  }
  return make_text(std::move(text));
}

Value Run::checked(Value value) {
  const Extent extent = extent_of(value);
  if (extent.depth > limits_.value_depth_max) {
    return fail(fmt::format("a value nested deeper than {} levels", limits_.value_depth_max));
  }
  if (extent.weight > limits_.weight_max) {
    return fail(fmt::format("a value of more than {} bytes", limits_.weight_max));
  }
  return value;
}

Text Run::str(const Value& value) {
  Text out;
  if (charge_weight(value)) append_str(out, value);
  return out;
}

std::vector<Value> Run::iterate(const Value& value) {
  std::vector<Value> items;
  if (const List* list = as_list(value)) {
    if (charge(list->items.size() / 16)) items = list->items;
  } else if (const Dict* dict = as_dict(value)) {
    if (!charge(dict->items.size() / 16)) return items;
    for (const auto& [key, ignored] : dict->items) items.push_back(key);
  } else if (const Text* text = as_text(value)) {
    if (!charge(text->size())) return items;
    const std::vector<std::size_t> offsets = character_offsets(text->view());
    for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(make_text(text->slice(offsets[i], offsets[i + 1] - offsets[i])));
    }
  } else if (!is_undefined(value)) {
    fail(fmt::format("a {} cannot be iterated", type_name(value)));
  }
  return items;
}

Value Run::character(const Text& text, std::int64_t index) {
  if (!charge_bytes(text.size())) return Undefined{};
  const std::vector<std::size_t> offsets = character_offsets(text.view());
  const auto count = static_cast<std::int64_t>(offsets.size()) - 1;
  if (index < 0) index += count;
  if (index < 0 || index >= count) return Undefined{"the string has no such character"};
  const auto i = static_cast<std::size_t>(index);
  return make_text(text.slice(offsets[i], offsets[i + 1] - offsets[i]));
}

Value Run::item(const Value& value, const Value& key) {
  if (const auto* undefined = std::get_if<Undefined>(&value)) return fail(undefined->why);
  if (const Dict* dict = as_dict(value)) {
    if (!charge(dict->items.size() / 64)) return Undefined{};
    if (const Value* found = find(*dict, key)) return *found;
  }
  const std::optional<std::int64_t> index = as_integer(key);
  if (const List* list = as_list(value); list != nullptr && index) {
    const auto count = static_cast<std::int64_t>(list->items.size());
    const std::int64_t at = *index < 0 ? *index + count : *index;
    if (at < 0 || at >= count) {
      return Undefined{fmt::format("the {} has no element {}", type_name(value), *index)};
    }
    return list->items[static_cast<std::size_t>(at)];
  }
  if (const Text* text = as_text(value); text != nullptr && index) return character(*text, *index);
  if (const Text* name = as_text(key)) {
    if (as_dict(value) == nullptr || has_method(value, name->view())) {
      return attribute(value, name->view());
    }
  }
  return Undefined{fmt::format("the {} has no member {:.80}", type_name(value), [&] {
    Text shown;
    if (extent_of(key).weight < 4096) append_repr(shown, key);
    return shown.bytes();
  }())};
}

Value Run::attribute(const Value& value, std::string_view name) {
  if (const auto* undefined = std::get_if<Undefined>(&value)) return fail(undefined->why);
  if (has_method(value, name)) {
    return std::make_shared<const Method>(Method{value, std::string(name)});
  }
  if (const Dict* dict = as_dict(value)) {
    if (!charge(dict->items.size() / 64)) return Undefined{};
    if (const Value* found = find(*dict, name)) return *found;
  } else if (const auto* space = std::get_if<Namespace*>(&value)) {
    const auto found = (*space)->members.find(name);
    if (found != (*space)->members.end()) return found->second;
  } else if (const auto* loop = std::get_if<const Loop*>(&value)) {
    if (std::optional<Value> member = loop_member(**loop, name)) return *std::move(member);
  }
  return Undefined{fmt::format("the {} has no member '{:.64}'", type_name(value), name)};
}

Value Run::path(const Value& value, const Value& attribute) {
  const Text* names = as_text(attribute);
  if (names == nullptr) return item(value, attribute);
  Value at = value;
  std::string_view rest = names->view();
  for (bool more = true; more && !failed();) {
    const std::size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    more = dot != std::string_view::npos;
    rest.remove_prefix(more ? dot + 1 : rest.size());
    const bool digits =
        !part.empty() && part.size() < 10 &&
        std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    at = item(at, digits ? Value(std::int64_t{std::stoi(std::string(part))})
                         : make_text(std::string(part)));
  }
  return at;
}

bool Run::contains(const Value& container, const Value& element) {
  if (const Text* text = as_text(container)) {
    const Text* part = as_text(element);
    if (part == nullptr) {
      fail(fmt::format("'in' wants a string in front of a string, not a {}", type_name(element)));
      return false;
    }
    return charge_bytes(text->size()) && text->bytes().find(part->bytes()) != std::string::npos;
  }
  if (const Dict* dict = as_dict(container)) {
    return charge(dict->items.size() / 64) && find(*dict, element) != nullptr;
  }
  if (const List* list = as_list(container)) {
    return charge_weight(container) &&
           std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& item) { return equal(item, element); });
  }
  if (!is_undefined(container)) {
    fail(fmt::format("'in' cannot look into a {}", type_name(container)));
  }
  return false;
}

std::vector<const Value*> bind(Run& run, std::string_view function, const CallArguments& args,
                               std::initializer_list<std::string_view> parameters,
                               std::size_t required) {
  std::vector<const Value*> values(parameters.size(), nullptr);
  if (args.positional.size() > parameters.size()) {
    run.fail(fmt::format("{}() takes {} arguments, but got {}", function, parameters.size(),
                         args.positional.size()));
    return values;
  }
  for (std::size_t i = 0; i < args.positional.size(); ++i) values[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto* known = std::find(parameters.begin(), parameters.end(), name);
    const auto at = static_cast<std::size_t>(known - parameters.begin());
    if (known == parameters.end() || values[at] != nullptr) {
      run.fail(fmt::format("{}() does not take the argument '{:.64}' here", function, name));
      return values;
    }
    values[at] = &value;
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (values[i] != nullptr) continue;
    run.fail(fmt::format("{}() lacks its argument '{}'", function, *(parameters.begin() + i)));
  }
  return values;
}

}  // namespace baton::jinja
