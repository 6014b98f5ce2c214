#include "actors/gateway/stop_strings.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace baton;

namespace {

struct Outcome {
  std::string text;
  bool matched = false;
};

// By definition: the first end of any stop string, the longest of those that end there.
Outcome oracle(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0) {
        longest = std::max(longest, stop.size());
      }
    }
    if (longest > 0) return {text.substr(0, end - longest), true};
  }
  return {text, false};
}

// True if some stop string could still be completed from `tail`'s end onwards, starting inside it.
bool could_start(const std::string& tail, const std::vector<std::string>& stops) {
  for (size_t from = 0; from < tail.size(); ++from) {
    for (const std::string& stop : stops) {
      if (tail.size() - from < stop.size() && stop.starts_with(tail.substr(from))) return true;
    }
  }
  return false;
}

std::string random_text(std::mt19937_64& random, size_t size, const std::string& letters) {
  std::string text;
  for (size_t i = 0; i < size; ++i) text += letters[random() % letters.size()];
  return text;
}

}  // namespace

TEST_CASE("without stop strings all text passes at once") {
  StopStrings stops;
  CHECK(stops.push("abc") == "abc");
  CHECK(stops.push("") == "");
  CHECK(stops.finish() == "");
  CHECK_FALSE(stops.matched());
}

TEST_CASE("a stop string that spans tokens is removed, and nothing of it was ever emitted") {
  StopStrings stops({"STOP"});
  CHECK(stops.push("go S") == "go ");
  CHECK(stops.push("T") == "");
  CHECK(stops.push("") == "");
  CHECK(stops.held_bytes() == 2);
  CHECK(stops.push("OP and more") == "");
  CHECK(stops.matched());
  CHECK(stops.push("later") == "");
  CHECK(stops.finish() == "");
}

TEST_CASE("text that only looked like a stop string is emitted when that is certain") {
  StopStrings stops({"aab"});
  CHECK(stops.push("aa") == "");
  CHECK(stops.push("a") == "a");  // "aa" may still start it
  CHECK(stops.push("c") == "aac");
  CHECK(stops.push("a") == "");
  CHECK(stops.finish() == "a");
  CHECK_FALSE(stops.matched());
}

TEST_CASE("of stop strings that end together the longest is removed") {
  StopStrings stops({"\n", "User:\n", "r:\n"});
  CHECK(stops.push("hi User:\n") == "hi ");
  CHECK(stops.matched());
}

TEST_CASE("stop strings equal a brute-force search on random texts, however they are cut") {
  std::mt19937_64 random(7);
  size_t matches = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i < 1 + random() % 4; ++i) {
      stops.push_back(random_text(random, 1 + random() % 6, "ab"));
    }
    const std::string text = random_text(random, random() % 40, round % 2 ? "ab" : "abc");
    StopStrings watcher(stops);
    std::string emitted;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min<size_t>(random() % 5, text.size() - at);
      emitted += watcher.push(text.substr(at, size));
      at += size;
      if (watcher.matched()) break;
      // Everything that cannot belong to a stop string is out, and nothing else.
      const std::string held = text.substr(emitted.size(), at - emitted.size());
      REQUIRE(held.size() == watcher.held_bytes());
      if (!held.empty()) REQUIRE(could_start(held, stops));
      for (const std::string& stop : stops) {
        if (!held.empty() && held.size() < stop.size()) continue;
        REQUIRE(held.find(stop) == std::string::npos);
      }
    }
    emitted += watcher.finish();
    const Outcome expected = oracle(text, stops);
    REQUIRE(emitted == expected.text);
    REQUIRE(watcher.matched() == expected.matched);
    matches += expected.matched;
  }
  CHECK(matches > 1000);  // the texts do exercise it
}

TEST_CASE("a stop string of 4 KiB costs linear time on the text that suits it least") {
  const std::string stop = std::string(4095, 'a') + 'b';
  StopStrings stops({stop, stop + 'c', 'x' + stop, "y"});
  std::string emitted;
  for (int i = 0; i < 200'000; ++i) emitted += stops.push("a");
  emitted += stops.finish();
  CHECK(emitted == std::string(200'000, 'a'));
}
