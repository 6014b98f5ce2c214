#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

// Watches one text stream for stop strings and holds back what could be the start of one: owns the
// held-back text; a choice's stream calls it with each new stretch of text. Plain copyable state.
//
// The match that ends first wins, the longest of those that end together; so the outcome depends on
// the text alone, not on how it was cut into tokens. Linear time: one KMP state per string.
class StopStrings {
 public:
  StopStrings() = default;
  // Precondition: no string is empty.
  explicit StopStrings(const std::vector<std::string>& strings);

  // The text that is certain not to belong to a stop string, in order. After a match: what was in
  // front of it, then nothing ever again.
  std::string push(std::string_view text);
  // The end of the stream: the text that was still held back.
  std::string finish();

  bool matched() const { return matched_; }
  size_t held_bytes() const { return held_.size(); }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> fallback;  // per length: of the longest border of that prefix
    uint32_t state = 0;              // bytes of it that the stream ends with
  };

  std::vector<Pattern> patterns_;
  std::string held_;  // ends where the stream ends
  bool matched_ = false;
};

}  // namespace baton
