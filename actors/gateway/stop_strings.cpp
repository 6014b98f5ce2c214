#include "actors/gateway/stop_strings.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace baton {
namespace {

std::vector<uint32_t> fallbacks_of(const std::string& text) {
  std::vector<uint32_t> fallback(text.size() + 1, 0);
  uint32_t border = 0;
  for (size_t i = 1; i < text.size(); ++i) {
    while (border > 0 && text[i] != text[border]) border = fallback[border];
    if (text[i] == text[border]) ++border;
    fallback[i + 1] = border;
  }
  return fallback;
}

}  // namespace

StopStrings::StopStrings(const std::vector<std::string>& strings) {
  for (const std::string& text : strings) {
    CHECK(!text.empty());
    patterns_.push_back({text, fallbacks_of(text), 0});
  }
}

std::string StopStrings::push(std::string_view text) {
  if (matched_ || text.empty()) return {};
  size_t longest = 0;  // of all patterns: how much of the end could still become one
  for (size_t at = 0; at < text.size(); ++at) {
    longest = 0;
    size_t match = 0;
    for (Pattern& pattern : patterns_) {
      uint32_t& state = pattern.state;
      while (state > 0 && pattern.text[state] != text[at]) state = pattern.fallback[state];
      if (pattern.text[state] == text[at]) ++state;
      longest = std::max<size_t>(longest, state);
      if (state == pattern.text.size()) match = std::max<size_t>(match, state);
    }
    if (match == 0) continue;
    matched_ = true;
    held_ += text.substr(0, at + 1);
    held_.resize(held_.size() - match);
    return std::exchange(held_, {});
  }
  held_ += text;
  std::string out = held_.substr(0, held_.size() - longest);
  held_.erase(0, out.size());
  return out;
}

std::string StopStrings::finish() {
  return std::exchange(held_, {});
}

}  // namespace baton
