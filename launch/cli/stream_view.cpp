#include "launch/cli/stream_view.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "launch/cli/terminal.h"

namespace baton::cli {
namespace {

constexpr int kColours[] = {36, 33, 35, 32, 34, 31};

// Bytes of the longest prefix of `text` that takes at most `columns` code points, ending at a space
// where there is one.
size_t line_length(const std::string& text, size_t columns) {
  size_t seen = 0;
  size_t space = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80 && ++seen > columns) {
      return space > 0 ? space : i;
    }
    if (text[i] == ' ') space = i;
  }
  return text.size();
}

bool longer_than(const std::string& text, size_t columns) {
  return line_length(text, columns) < text.size();
}

// Of all choices.
size_t tokens_of(const client::Result& result) {
  size_t tokens = 0;
  for (size_t c = 0; c < result.choices(); ++c) tokens += result.choice(c).ids.size();
  return tokens;
}

std::string tokens_per_second(const client::Result& r) {
  const int64_t decode_us = r.usage.total_us - r.usage.ttft_us;
  const size_t tokens = tokens_of(r);
  if (tokens <= r.choices() || decode_us <= 0) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.1f",
                static_cast<double>(tokens - r.choices()) * 1e6 / static_cast<double>(decode_us));
  return buffer;
}

// "[2]" for an answer, "[2.1]" for one of several choices; of one prompt alone, the choice's
// number.
std::vector<std::string> tags_of(size_t streams, size_t choices) {
  std::vector<std::string> tags;
  for (size_t i = 0; i < streams; ++i) {
    for (size_t c = 0; c < choices; ++c) {
      std::string tag;
      if (streams > 1 || choices == 1) tag = std::to_string(i + 1);
      if (choices > 1) tag += (tag.empty() ? "" : ".") + std::to_string(c);
      tags.push_back("[" + tag + "]");
    }
  }
  return tags;
}

std::string finishes_of(const client::Result& result) {
  std::string text = result.finish;
  for (const client::Choice& choice : result.more) text += ", " + choice.finish;
  return text;
}

}  // namespace

StreamView::StreamView(std::vector<std::string> tags)
    : tags_(std::move(tags)),
      pending_(tags_.size()),
      colour_(may_colour(stdout)),
      width_(static_cast<size_t>(terminal_width()) - 6) {}

void StreamView::print(size_t stream, const std::string& line) const {
  const std::string& label = tags_[stream];
  const int colour = kColours[stream % std::size(kColours)];
  std::printf("%s %s\n", coloured(label, colour, colour_).c_str(), line.c_str());
  std::fflush(stdout);
}

void StreamView::add(size_t stream, const std::string& text) {
  if (pending_.size() == 1) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
    pending_[0] = text.empty() ? pending_[0] : text.substr(text.size() - 1);
    return;
  }
  std::string& pending = pending_[stream];
  pending += text;
  for (size_t at = 0; (at = pending.find('\n')) != std::string::npos;) {
    std::string line = pending.substr(0, at);
    pending.erase(0, at + 1);
    while (longer_than(line, width_)) {
      const size_t length = line_length(line, width_);
      print(stream, line.substr(0, length));
      line.erase(0, length + (line[length] == ' ' ? 1 : 0));
    }
    print(stream, line);
  }
  while (longer_than(pending, width_)) {
    const size_t length = line_length(pending, width_);
    print(stream, pending.substr(0, length));
    pending.erase(0, length + (pending[length] == ' ' ? 1 : 0));
  }
}

void StreamView::end(size_t stream) {
  if (pending_.size() == 1) {
    if (pending_[0] != "\n") std::printf("\n");
    return;
  }
  if (!pending_[stream].empty()) print(stream, pending_[stream]);
  pending_[stream].clear();
}

std::vector<Answer> follow(std::vector<client::Stream>& streams,
                           const std::vector<std::string>& labels, size_t choices) {
  StreamView view(tags_of(streams.size(), choices));
  std::vector<Answer> answers(streams.size());
  std::vector<bool> ended(streams.size(), false);
  for (size_t left = streams.size(); left > 0;) {
    for (size_t i = 0; i < streams.size(); ++i) {
      if (ended[i]) continue;
      if (const auto part = streams[i].next(streams.size() == 1 ? 50 : 5)) {
        view.add(i * choices + std::min<size_t>(part->choice, choices - 1), part->text);
      }
      if (!streams[i].finished()) continue;
      for (size_t c = 0; c < choices; ++c) view.end(i * choices + c);
      ended[i] = true;
      --left;
      answers[i].label = labels[i];
      answers[i].failed = streams[i].failed();
      if (answers[i].failed) {
        answers[i].error = streams[i].error();
      } else {
        answers[i].result = streams[i].result();
      }
    }
  }
  return answers;
}

std::string summary_table(const std::vector<Answer>& answers, bool colour) {
  Table table({"answer", "prompt tokens", "first token", "tokens", "tokens/s", "KV handed over",
               "hand-off", "ranks", "end"});
  for (size_t i = 0; i < answers.size(); ++i) {
    const Answer& a = answers[i];
    const std::string label = "[" + std::to_string(i + 1) + "] " + a.label;
    if (a.failed) {
      table.add({label, "-", "-", "-", "-", "-", "-", "-", a.error.code});
      continue;
    }
    const client::Usage& u = a.result.usage;
    const std::string ranks =
        u.kv_bytes > 0 ? std::to_string(u.prefill_rank) + " -> " + std::to_string(u.decode_rank)
                       : std::to_string(u.prefill_rank);
    table.add({label, count_text(u.prompt_tokens), duration_text(u.ttft_us),
               count_text(tokens_of(a.result)), tokens_per_second(a.result), bytes_text(u.kv_bytes),
               duration_text(u.transfer_us), ranks, finishes_of(a.result)});
  }
  return table.text(colour);
}

}  // namespace baton::cli
