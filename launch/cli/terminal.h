#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace baton::cli {

// Whether `stream` is a terminal, and whether it may be coloured (a terminal, and no NO_COLOR).
bool is_terminal(std::FILE* stream);
bool may_colour(std::FILE* stream);
// Columns of the terminal; 100 where there is none.
int terminal_width();

// All of standard input.
std::string read_stdin();

// `text` in an ANSI colour (31 red, 32 green, ...; 1 bold, 2 dim) if `on`.
std::string coloured(const std::string& text, int colour, bool on);

// "12.3 MB", "1.2 ms", "1,234": numbers as people read them.
std::string bytes_text(uint64_t bytes);
std::string duration_text(int64_t micros);
std::string count_text(uint64_t value);

// A table with a header line; columns as wide as they need to be, numbers to the right.
class Table {
 public:
  explicit Table(std::vector<std::string> header) : header_(std::move(header)) {}
  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  std::string text(bool colour) const;

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;
};

// One line of progress on stderr: redrawn in place on a terminal, else a line every 10 %.
class ProgressBar {
 public:
  explicit ProgressBar(std::string label);
  void update(uint64_t done, uint64_t total);  // draws at most ten times a second
  void finish();

 private:
  std::string label_;
  bool terminal_;
  bool drawn_ = false;
  int last_tenth_ = -1;
  std::chrono::steady_clock::time_point last_draw_{};
};

}  // namespace baton::cli
