#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launch/client/baton_client.h"

namespace baton::cli {

// One answer as the summary table shows it.
struct Answer {
  std::string label;
  client::Result result;
  client::Error error;
  bool failed = false;
};

// Shows several streams on one terminal so that a person can follow each: whole lines, each with
// the tag of its answer in the answer's colour. A single stream is shown as it comes. Main thread
// only.
class StreamView {
 public:
  explicit StreamView(std::vector<std::string> tags);
  void add(size_t stream, const std::string& text);
  void end(size_t stream);

 private:
  void print(size_t stream, const std::string& line) const;

  std::vector<std::string> tags_;
  std::vector<std::string> pending_;
  bool colour_;
  size_t width_;
};

// Waits for all streams of `choices` choices each, showing them as they come, and returns the
// answers in order.
std::vector<Answer> follow(std::vector<client::Stream>& streams,
                           const std::vector<std::string>& labels, size_t choices);

// prompt tokens, time to first token, tokens, tokens/s, KV bytes and time of the hand-off, ranks.
std::string summary_table(const std::vector<Answer>& answers, bool colour);

}  // namespace baton::cli
