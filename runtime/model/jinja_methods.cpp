#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <limits>

#include "runtime/base/utf8.h"
#include "runtime/model/jinja_filters.h"

namespace baton::jinja {
namespace {

using TextMethod = Value (*)(Run&, const Text&, const CallArguments&);

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

const Text* text_argument(Run& run, const Value* value) {
  const Text* text = value == nullptr ? nullptr : as_text(*value);
  if (value != nullptr && text == nullptr && !is_none(*value)) {
    run.fail(fmt::format("a string method wants a string, not a {}", type_name(*value)));
  }
  return text;
}

// A count argument: negative or absent means all.
std::size_t count_argument(Run& run, const Value* value) {
  if (value == nullptr) return kAll;
  const std::optional<std::int64_t> count = as_integer(*value);
  if (!count) run.fail(fmt::format("a count must be an integer, not a {}", type_name(*value)));
  return count.value_or(-1) < 0 ? kAll : static_cast<std::size_t>(*count);
}

template <bool kLeft, bool kRight>
Value strip(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, "strip", args, {"chars"});
  const Text* characters = text_argument(run, given[0]);
  const std::string_view set = characters == nullptr ? kWhiteSpace : characters->view();
  if (!run.charge(text.size() / 64 * (1 + set.size() / 16))) return Undefined{};
  return run.text(stripped(text, set, kLeft, kRight));
}

template <Text (*kMap)(const Text&)>
Value mapped(Run& run, const Text& text, const CallArguments& args) {
  bind(run, "the method", args, {});
  return run.charge(text.size() / 16) ? run.text(kMap(text)) : Value();
}

// The words between white space, as str.split() without separator; at most `cuts` cuts.
std::vector<Value> words(const Text& text, std::size_t cuts, bool from_right) {
  std::vector<Value> out;
  Text rest = stripped(text, kWhiteSpace, !from_right, from_right);
  while (!rest.empty()) {
    const std::string_view bytes = rest.view();
    std::size_t cut = std::string::npos;
    for (std::size_t at = 0; at < bytes.size() && (from_right || cut == std::string::npos);) {
      const std::size_t start = at;
      if (is_space(next_code_point(bytes, at))) cut = start;
    }
    if (cut == std::string::npos || out.size() >= cuts) break;
    if (from_right) {
      std::size_t behind = cut;
      next_code_point(bytes, behind);
      out.push_back(make_text(rest.slice(behind)));
      rest = stripped(rest.slice(0, cut), kWhiteSpace, false, true);
    } else {
      out.push_back(make_text(rest.slice(0, cut)));
      rest = stripped(rest.slice(cut), kWhiteSpace, true, false);
    }
  }
  if (!rest.empty()) out.push_back(make_text(std::move(rest)));
  if (from_right) std::reverse(out.begin(), out.end());
  return out;
}

// The words without a limit on cuts: one pass, for the usual call.
std::vector<Value> all_words(const Text& text) {
  std::vector<Value> out;
  const std::string_view bytes = text.view();
  std::size_t start = std::string::npos;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t here = at;
    const bool space = is_space(next_code_point(bytes, at));
    if (space && start != std::string::npos) {
      out.push_back(make_text(text.slice(start, here - start)));
      start = std::string::npos;
    } else if (!space && start == std::string::npos) {
      start = here;
    }
  }
  if (start != std::string::npos) out.push_back(make_text(text.slice(start)));
  return out;
}

std::vector<Value> pieces(const Text& text, const std::string& separator, std::size_t cuts,
                          bool from_right) {
  std::vector<std::size_t> found;
  if (from_right) {
    std::size_t end = text.size();
    while (found.size() < cuts && end >= separator.size()) {
      const std::size_t at = text.bytes().rfind(separator, end - separator.size());
      if (at == std::string::npos) break;
      found.push_back(at);
      end = at;
    }
    std::reverse(found.begin(), found.end());
  } else {
    std::size_t at = 0;
    while (found.size() < cuts && (at = text.bytes().find(separator, at)) != std::string::npos) {
      found.push_back(at);
      at += separator.size();
    }
  }
  std::vector<Value> out;
  std::size_t start = 0;
  for (const std::size_t at : found) {
    out.push_back(make_text(text.slice(start, at - start)));
    start = at + separator.size();
  }
  out.push_back(make_text(text.slice(start)));
  return out;
}

template <bool kFromRight>
Value split(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, "split", args, {"sep", "maxsplit"});
  const Text* separator = text_argument(run, given[0]);
  const std::size_t cuts = count_argument(run, given[1]);
  if (!run.charge(text.size() / 16)) return Undefined{};
  std::vector<Value> out;
  if (separator != nullptr) {
    if (separator->empty()) return run.fail("split() with an empty separator");
    out = pieces(text, separator->bytes(), cuts, kFromRight);
  } else if (cuts == kAll) {
    out = all_words(text);
  } else {
    // Each cut walks the rest once.
    if (!run.charge(std::min(cuts, text.size()) * (1 + text.size() / 256))) return Undefined{};
    out = words(text, cuts, kFromRight);
  }
  if (!run.charge(out.size())) return Undefined{};
  return make_list(std::move(out));
}

Value split_lines(Run& run, const Text& text, const CallArguments& args) {
  bind(run, "splitlines", args, {});
  if (!run.charge(text.size() / 16)) return Undefined{};
  std::vector<Value> out;
  for (Text& line : lines_of(text)) out.push_back(make_text(std::move(line)));
  return make_list(std::move(out));
}

template <bool kStart>
Value affix(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, kStart ? "startswith" : "endswith", args, {"prefix"}, 1);
  if (run.failed()) return Undefined{};
  const auto matches = [&](const Value& wanted) {
    const Text* affix_text = text_argument(run, &wanted);
    if (affix_text == nullptr) return false;
    return kStart ? text.view().starts_with(affix_text->view())
                  : text.view().ends_with(affix_text->view());
  };
  if (const List* any = as_list(*given[0])) {
    return std::any_of(any->items.begin(), any->items.end(), matches);
  }
  return matches(*given[0]);
}

template <bool kStart>
Value without_affix(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, kStart ? "removeprefix" : "removesuffix", args, {"affix"}, 1);
  if (run.failed()) return Undefined{};
  const Text* gone = text_argument(run, given[0]);
  if (gone == nullptr) return Undefined{};
  if (kStart && text.view().starts_with(gone->view())) return run.text(text.slice(gone->size()));
  if (!kStart && text.view().ends_with(gone->view())) {
    return run.text(text.slice(0, text.size() - gone->size()));
  }
  return run.text(text);
}

Value replace(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, "replace", args, {"old", "new", "count"}, 2);
  if (run.failed()) return Undefined{};
  const Text *old = text_argument(run, given[0]), *by = text_argument(run, given[1]);
  const std::size_t most = count_argument(run, given[2]);
  if (old == nullptr || by == nullptr || run.failed()) return Undefined{};
  // The work is bounded by how long the result can be.
  std::uint64_t bytes = text.size();
  const std::uint64_t places =
      std::min<std::uint64_t>(most, old->empty() ? text.size() + 1 : text.size() / old->size());
  if (by->size() > old->size() &&
      __builtin_add_overflow(bytes, places * std::min<std::uint64_t>(by->size(), 1u << 24),
                             &bytes)) {
    bytes = kAll;
  }
  if (by->size() > old->size() && places != 0) {
    // Count the places only when the bound alone would refuse the call.
    if (bytes > run.limits().text_bytes_max && !old->empty()) {
      std::uint64_t found = 0;
      for (std::size_t at = 0; (at = text.bytes().find(old->bytes(), at)) != std::string::npos;
           at += old->size()) {
        ++found;
      }
      bytes = text.size() + std::min(found, places) * (by->size() - old->size());
    }
    if (bytes > run.limits().text_bytes_max) {
      return run.fail(fmt::format("a text of more than {} bytes", run.limits().text_bytes_max));
    }
  }
  if (!run.charge(text.size() / 64)) return Undefined{};
  return run.text(replaced(text, *old, *by, most));
}

Value join(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, "join", args, {"iterable"}, 1);
  if (run.failed()) return Undefined{};
  Text out;
  bool first = true;
  for (const Value& element : run.iterate(*given[0])) {
    const Text* part = as_text(element);
    if (part == nullptr)
      return run.fail(fmt::format("join() wants strings, not a {}", type_name(element)));
    if (!first) out.append(text);
    first = false;
    out.append(*part);
    if (!run.charge(1 + (part->size() + text.size()) / 256)) break;
    if (out.size() > run.limits().text_bytes_max) break;
  }
  return run.text(std::move(out));
}

// The character index of a byte offset, or -1.
std::int64_t character_index(const Text& text, std::size_t offset) {
  if (offset == std::string::npos) return -1;
  return static_cast<std::int64_t>(character_offsets(text.view().substr(0, offset)).size()) - 1;
}

template <bool kFromRight>
Value find_part(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, "find", args, {"sub"}, 1);
  const Text* part = run.failed() ? nullptr : text_argument(run, given[0]);
  if (part == nullptr || !run.charge_bytes(text.size() * 4)) return Undefined{};
  return character_index(
      text, kFromRight ? text.bytes().rfind(part->bytes()) : text.bytes().find(part->bytes()));
}

Value count(Run& run, const Text& text, const CallArguments& args) {
  const auto given = bind(run, "count", args, {"sub"}, 1);
  const Text* part = run.failed() ? nullptr : text_argument(run, given[0]);
  if (part == nullptr || !run.charge_bytes(text.size() * 4)) return Undefined{};
  if (part->empty()) return static_cast<std::int64_t>(character_offsets(text.view()).size());
  std::int64_t found = 0;
  for (std::size_t at = 0; (at = text.bytes().find(part->bytes(), at)) != std::string::npos;
       at += part->size()) {
    ++found;
  }
  return found;
}

bool is_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_digit(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}

bool is_letter_or_digit(char32_t c) {
  return is_letter(c) || is_digit(c);
}

template <bool (*kIs)(char32_t)>
Value every(Run& run, const Text& text, const CallArguments& args) {
  bind(run, "the method", args, {});
  if (!run.charge(text.size() / 16)) return Undefined{};
  for (std::size_t at = 0; at < text.size();) {
    if (!kIs(next_code_point(text.view(), at))) return false;
  }
  return !text.empty();
}

template <bool kUpper>
Value has_case(Run& run, const Text& text, const CallArguments& args) {
  bind(run, "the method", args, {});
  return apply_test(run, kUpper ? "upper" : "lower", make_text(text), {});
}

struct TextEntry {
  std::string_view name;
  TextMethod method;
};

constexpr TextEntry kTextMethods[] = {
    {"capitalize", mapped<capitalized>},
    {"count", count},
    {"endswith", affix<false>},
    {"find", find_part<false>},
    {"isalnum", every<is_letter_or_digit>},
    {"isalpha", every<is_letter>},
    {"isdigit", every<is_digit>},
    {"islower", has_case<false>},
    {"isspace", every<is_space>},
    {"isupper", has_case<true>},
    {"join", join},
    {"lower", mapped<lower>},
    {"lstrip", strip<true, false>},
    {"removeprefix", without_affix<true>},
    {"removesuffix", without_affix<false>},
    {"replace", replace},
    {"rfind", find_part<true>},
    {"rsplit", split<true>},
    {"rstrip", strip<false, true>},
    {"split", split<false>},
    {"splitlines", split_lines},
    {"startswith", affix<true>},
    {"strip", strip<true, true>},
    {"title", mapped<titled>},
    {"upper", mapped<upper>},
};

constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get"};
constexpr std::string_view kListMethods[] = {"index", "count"};
constexpr std::string_view kLoopMethods[] = {"cycle"};

template <class Table>
bool has(const Table& table, std::string_view name) {
  return std::find(std::begin(table), std::end(table), name) != std::end(table);
}

const TextEntry* text_method(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTextMethods), std::end(kTextMethods),
                                   [&](const TextEntry& entry) { return entry.name == name; });
  return found == std::end(kTextMethods) ? nullptr : found;
}

Value call_dict(Run& run, const Dict& dict, std::string_view name, const CallArguments& args) {
  if (!run.charge(dict.items.size() / 16)) return Undefined{};
  if (name == "get") {
    const auto given = bind(run, "get", args, {"key", "default"}, 1);
    if (run.failed()) return Undefined{};
    if (const Value* found = find(dict, *given[0])) return *found;
    return given[1] == nullptr ? Value(None{}) : *given[1];
  }
  bind(run, name, args, {});
  std::vector<Value> out;
  for (const auto& [key, value] : dict.items) {
    if (name == "items") out.push_back(make_list({key, value}, true));
    if (name == "keys") out.push_back(key);
    if (name == "values") out.push_back(value);
  }
  return make_list(std::move(out));
}

Value call_list(Run& run, const Value& self, std::string_view name, const CallArguments& args) {
  const auto given = bind(run, name, args, {"value"}, 1);
  if (run.failed() || !run.charge_weight(self)) return Undefined{};
  const std::vector<Value>& items = as_list(self)->items;
  const auto matches = [&](const Value& item) { return equal(item, *given[0]); };
  if (name == "count") return std::int64_t{std::count_if(items.begin(), items.end(), matches)};
  const auto found = std::find_if(items.begin(), items.end(), matches);
  if (found == items.end()) return run.fail("index() of a value that is not in the list");
  return std::int64_t{found - items.begin()};
}

Value call_loop(Run& run, const Loop& loop, const CallArguments& args) {
  if (args.positional.empty()) return run.fail("loop.cycle() without items");
  return args.positional[loop.index % args.positional.size()];
}

}  // namespace

bool has_method(const Value& self, std::string_view name) {
  if (as_text(self) != nullptr) return text_method(name) != nullptr;
  if (as_dict(self) != nullptr) return has(kDictMethods, name);
  if (as_list(self) != nullptr) return has(kListMethods, name);
  return std::holds_alternative<const Loop*>(self) && has(kLoopMethods, name);
}

Value call_method(Run& run, const Value& self, std::string_view name, const CallArguments& args) {
  if (const Text* text = as_text(self)) return text_method(name)->method(run, *text, args);
  if (const Dict* dict = as_dict(self)) return call_dict(run, *dict, name, args);
  if (as_list(self) != nullptr) return call_list(run, self, name, args);
  return call_loop(run, *std::get<const Loop*>(self), args);
}

}  // namespace baton::jinja
