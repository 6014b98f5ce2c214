#include "launch/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace baton::cli {
namespace {

// Columns that `text` takes: code points, escape sequences left out.
size_t display_width(const std::string& text) {
  size_t width = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
      continue;
    }
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) ++width;
  }
  return width;
}

bool looks_like_number(const std::string& text) {
  return !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) || text == "-");
}

std::string fixed(double value, const char* unit) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer,
                value < 10    ? "%.2f %s"
                : value < 100 ? "%.1f %s"
                              : "%.0f %s",
                value, unit);
  return buffer;
}

}  // namespace

bool is_terminal(std::FILE* stream) {
  return isatty(fileno(stream)) != 0;
}

bool may_colour(std::FILE* stream) {
  const char* no_colour = std::getenv("NO_COLOR");
  return is_terminal(stream) && !(no_colour && *no_colour);
}

int terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20) return size.ws_col;
  return 100;
}

std::string read_stdin() {
  std::string all;
  char buffer[4096];
  for (size_t got; (got = std::fread(buffer, 1, sizeof buffer, stdin)) > 0;) {
    all.append(buffer, got);
  }
  return all;
}

std::string coloured(const std::string& text, int colour, bool on) {
  if (!on) return text;
  return "\x1b[" + std::to_string(colour) + "m" + text + "\x1b[0m";
}

std::string bytes_text(uint64_t bytes) {
  if (bytes < 1000) return std::to_string(bytes) + " B";
  const auto value = static_cast<double>(bytes);
  if (bytes < 1000 * 1000) return fixed(value / 1e3, "kB");
  if (bytes < 1000ull * 1000 * 1000) return fixed(value / 1e6, "MB");
  return fixed(value / 1e9, "GB");
}

std::string duration_text(int64_t micros) {
  const auto value = static_cast<double>(micros);
  if (micros < 1000) return std::to_string(micros) + " us";
  if (micros < 1000 * 1000) return fixed(value / 1e3, "ms");
  return fixed(value / 1e6, "s");
}

std::string count_text(uint64_t value) {
  std::string digits = std::to_string(value);
  for (auto at = static_cast<ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3) {
    digits.insert(static_cast<size_t>(at), ",");
  }
  return digits;
}

std::string Table::text(bool colour) const {
  std::vector<size_t> widths;
  for (const std::string& cell : header_) widths.push_back(display_width(cell));
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  const auto line = [&](const std::vector<std::string>& row, bool header) {
    std::string out;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string pad(widths[i] - display_width(row[i]), ' ');
      const bool right = header ? !rows_.empty() && looks_like_number(rows_.front()[i])
                                : looks_like_number(row[i]);
      const std::string cell = header ? coloured(row[i], 1, colour) : row[i];
      out += (i ? "  " : "") + (right ? pad + cell : cell + pad);
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out + "\n";
  };
  std::string out = line(header_, true);
  for (const auto& row : rows_) out += line(row, false);
  return out;
}

ProgressBar::ProgressBar(std::string label)
    : label_(std::move(label)), terminal_(is_terminal(stderr)) {}

void ProgressBar::update(uint64_t done, uint64_t total) {
  if (total == 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (!terminal_) {
    const int tenth = static_cast<int>(done * 10 / total);
    if (tenth == last_tenth_) return;
    last_tenth_ = tenth;
    std::fprintf(stderr, "%s %d %%\n", label_.c_str(), tenth * 10);
    return;
  }
  if (drawn_ && done < total && now - last_draw_ < std::chrono::milliseconds(100)) return;
  drawn_ = true;
  last_draw_ = now;
  constexpr uint64_t kWidth = 30;
  const uint64_t filled = std::min(kWidth, done * kWidth / total);
  std::string bar;
  for (uint64_t i = 0; i < kWidth; ++i) bar += i < filled ? "█" : "░";
  std::fprintf(stderr, "\r%s %s %3d %%  %s of %s\x1b[K", label_.c_str(), bar.c_str(),
               static_cast<int>(done * 100 / total), count_text(done).c_str(),
               count_text(total).c_str());
  std::fflush(stderr);
}

void ProgressBar::finish() {
  if (terminal_ && drawn_) std::fputc('\n', stderr);
}

}  // namespace baton::cli
