#include "runtime/model/jinja_sequence_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/model/jinja_filters.h"

namespace baton::jinja {
namespace {

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

Value extreme(Run& run, const Value& value, const CallArguments& args, bool largest) {
  const auto given = bind(run, largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  std::optional<Value> best;
  Value best_key;
  for (Value& element : run.iterate(value)) {
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

CallArguments without_first(const CallArguments& args, std::size_t count) {
  CallArguments rest = args;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(count));
  return rest;
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
  for (const Value& element : run.iterate(value)) {
    if (!run.charge(1)) break;
    const Value part = by_attribute ? run.path(element, args.positional[0]) : element;
    const bool holds = test == nullptr ? truthy(part) : apply_test(run, test->view(), part, rest);
    if (holds == keep) out.push_back(element);
  }
  return make_list(std::move(out));
}

}  // namespace

bool flag_or(const Value* value, bool fallback) {
  return value == nullptr ? fallback : truthy(*value);
}

Value join(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "join", args, {"d", "attribute"});
  const Text separator = given[0] == nullptr ? Text() : run.str(*given[0]);
  Text out;
  bool first = true;
  for (const Value& element : run.iterate(value)) {
    if (!first) out.append(separator);
    first = false;
    out.append(run.str(given[1] == nullptr ? element : run.path(element, *given[1])));
    if (!run.charge(1 + separator.size() / 256) || out.size() > run.limits().text_bytes_max) break;
  }
  return run.text(std::move(out));
}

Value first(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "first", args, {});
  const std::vector<Value> all = run.iterate(value);
  return all.empty() ? Value(Undefined{"there is no first item, the sequence is empty"})
                     : all.front();
}

Value last(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "last", args, {});
  const std::vector<Value> all = run.iterate(value);
  return all.empty() ? Value(Undefined{"there is no last item, the sequence is empty"})
                     : all.back();
}

Value reverse(Run& run, const Value& value, const CallArguments& args) {
  bind(run, "reverse", args, {});
  std::vector<Value> all = run.iterate(value);
  std::reverse(all.begin(), all.end());
  if (as_text(value) == nullptr) return make_list(std::move(all));
  Text out;
  for (const Value& character : all) out.append(*as_text(character));
  return run.text(std::move(out));
}

Value sort(Run& run, const Value& value, const CallArguments& args) {
  const auto given = bind(run, "sort", args, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& element : run.iterate(value)) {
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
  for (Value& element : run.iterate(value)) {
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
  std::vector<Value> all = run.iterate(value);
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

Value map(Run& run, const Value& value, const CallArguments& args) {
  std::vector<Value> out;
  if (args.positional.empty()) {
    const auto given = bind(run, "map", args, {"attribute", "default"}, 1);
    if (run.failed()) return Undefined{};
    for (const Value& element : run.iterate(value)) {
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
  for (const Value& element : run.iterate(value)) {
    if (!run.charge(1)) break;
    out.push_back(apply_filter(run, name->view(), element, rest));
  }
  return make_list(std::move(out));
}

Value select(Run& run, const Value& value, const CallArguments& args) {
  return chosen(run, value, args, false, true);
}

Value reject(Run& run, const Value& value, const CallArguments& args) {
  return chosen(run, value, args, false, false);
}

Value select_by_attribute(Run& run, const Value& value, const CallArguments& args) {
  return chosen(run, value, args, true, true);
}

Value reject_by_attribute(Run& run, const Value& value, const CallArguments& args) {
  return chosen(run, value, args, true, false);
}

}  // namespace baton::jinja
