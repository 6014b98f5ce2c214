#include "runtime/base/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"

namespace baton {
namespace {

constexpr std::size_t kShownNameBytes = 64;
constexpr std::size_t kShownErrorBytes = 200;
constexpr std::size_t kLinearMembers =
    16;  // objects up to this size look for duplicates one by one

// Walks the text and tells how far the parser has come: nlohmann's SAX events carry no position.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, const char** furthest) : at_(at), furthest_(furthest) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    *furthest_ = ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    CountingIterator before = *this;
    ++*this;
    return before;
  }
  friend bool operator==(const CountingIterator& a, const CountingIterator& b) {
    return a.at_ == b.at_;
  }
  friend bool operator!=(const CountingIterator& a, const CountingIterator& b) { return !(a == b); }

 private:
  const char* at_;
  const char** furthest_;
};

std::string shown(std::string_view name) {
  std::string out;
  append_json_string(out, name.substr(0, valid_utf8_prefix(name.substr(0, kShownNameBytes))));
  return out;
}

// Builds the value while it is read, and stops at the first thing that is not allowed. Open
// containers lie on an explicit stack, so depth costs no call frames.
class Builder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(const JsonLimits& limits, const char* start, const char* const* furthest)
      : limits_(limits), start_(start), furthest_(furthest) {}

  bool null() override { return add(Json()); }
  bool boolean(bool value) override { return add(Json(value)); }
  bool number_integer(number_integer_t value) override { return add(Json(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Json(static_cast<double>(value)));
    }
    return add(Json(static_cast<std::int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override {
    if (!std::isfinite(value)) return fail("a number that is not finite");
    return add(Json(double{value}));
  }
  bool string(string_t& value) override { return add(Json(std::move(value))); }
  bool binary(binary_t&) override { return fail("binary data"); }

  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    Level& level = open_.back();
    const Json::Object& members = level.value.as_object();
    bool known = false;
    if (members.size() < kLinearMembers) {
      known = level.value.find(name) != nullptr;
    } else {
      if (level.names.empty()) {
        for (const Json::Member& member : members) level.names.insert(member.name);
      }
      known = !level.names.insert(name).second;
    }
    if (known) return fail(fmt::format("the member {} a second time", shown(name)));
    level.name = std::move(name);
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string what = error.what();
    // "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..."
    if (const std::size_t cut = what.find(": "); cut != std::string::npos) what.erase(0, cut + 2);
    what.resize(std::min(what.size(), kShownErrorBytes));  // it quotes what was read last
    what.erase(valid_utf8_prefix(what));
    if (error_.empty()) error_ = fmt::format("at byte {}: {}", position, what);
    return false;
  }

  const std::string& error() const { return error_; }
  Json take() { return std::move(root_); }

 private:
  struct Level {
    Json value;
    std::string name;                       // of the member that is being read
    std::unordered_set<std::string> names;  // of a large object's members
  };

  bool fail(const std::string& what) {
    error_ = fmt::format("at byte {}: {}", *furthest_ - start_, what);
    return false;
  }

  bool count() {
    if (++values_ <= limits_.values_max) return true;
    return fail(fmt::format("more than {} values", limits_.values_max));
  }

  bool add(Json value) {
    if (!count()) return false;
    place(std::move(value));
    return true;
  }

  void place(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_object()) {
      Level& level = open_.back();
      level.value.as_object().push_back({std::move(level.name), std::move(value)});
    } else {
      open_.back().value.push_back(std::move(value));
    }
  }

  bool open(Json container) {
    if (!count()) return false;
    if (open_.size() >= static_cast<std::size_t>(limits_.depth_max)) {
      return fail(fmt::format("nesting deeper than {} levels", limits_.depth_max));
    }
    open_.push_back({std::move(container), {}, {}});
    return true;
  }

  bool close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    place(std::move(value));
    return true;
  }

  const JsonLimits& limits_;
  const char* start_;
  const char* const* furthest_;
  std::size_t values_ = 0;
  std::vector<Level> open_;
  Json root_;
  std::string error_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  const auto invalid = [](std::string what) {
    return Error{ErrorCode::invalid_argument, "invalid JSON " + std::move(what)};
  };
  if (text.size() > limits.bytes_max) {
    return invalid(
        fmt::format("of {} bytes: at most {} are accepted", text.size(), limits.bytes_max));
  }
  if (text.starts_with("\xEF\xBB\xBF")) return invalid("at byte 0: a byte order mark");
  if (const std::size_t valid = valid_utf8_prefix(text); valid != text.size()) {
    return invalid(fmt::format("at byte {}: not UTF-8", valid));
  }
  const char* furthest = text.data();
  Builder builder(limits, text.data(), &furthest);
  const CountingIterator begin(text.data(), &furthest);
  const CountingIterator end(text.data() + text.size(), &furthest);
  if (!nlohmann::json::sax_parse(begin, end, &builder)) return invalid(builder.error());
  return builder.take();
}

}  // namespace baton
