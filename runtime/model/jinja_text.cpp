#include "runtime/model/jinja_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "runtime/base/utf8.h"

namespace baton::jinja {
namespace {

bool has(std::string_view characters, char32_t wanted) {
  for (std::size_t at = 0; at < characters.size();) {
    if (next_code_point(characters, at) == wanted) return true;
  }
  return false;
}

bool strips(std::string_view characters, char32_t character) {
  return characters.data() == nullptr ? is_space(character) : has(characters, character);
}

void append_upper(std::string& out, char32_t character) {
  if (character == 0xDF) {
    out += "SS";
    return;
  }
  append_utf8(out,
              static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(character))));
}

void append_lower(std::string& out, char32_t character) {
  append_utf8(out,
              static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character))));
}

bool is_cased(char32_t character) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(character));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL ||
         category == UTF8PROC_CATEGORY_LT;
}

// Rewrites every character with its neighbourhood in `state`; keeps where each came from.
template <class Each>
Text mapped(const Text& text, Each each) {
  Text out;
  std::size_t at = 0;
  std::string piece;
  for (const Text::Run& run : text.runs()) {
    piece.clear();
    while (at < run.end) each(piece, next_code_point(text.view(), at));
    out.append(piece, run.content);
  }
  return out;
}

}  // namespace

Text::Text(std::string bytes, bool content) : bytes_(std::move(bytes)) {
  if (!bytes_.empty()) runs_.push_back({bytes_.size(), content});
}

void Text::append(std::string_view bytes, bool content) {
  if (bytes.empty()) return;
  bytes_ += bytes;
  if (!runs_.empty() && runs_.back().content == content) {
    runs_.back().end = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), content});
  }
}

void Text::append(const Text& other) {
  std::size_t start = 0;
  for (const Run& run : other.runs_) {
    append(other.view().substr(start, run.end - start), run.content);
    start = run.end;
  }
}

Text Text::slice(std::size_t start, std::size_t size) const {
  Text out;
  if (start >= bytes_.size()) return out;
  const std::size_t end = start + std::min(size, bytes_.size() - start);
  auto run = std::upper_bound(runs_.begin(), runs_.end(), start,
                              [](std::size_t at, const Run& r) { return at < r.end; });
  for (std::size_t at = start; at < end; ++run) {
    const std::size_t piece_end = std::min(end, run->end);
    out.append(view().substr(at, piece_end - at), run->content);
    at = piece_end;
  }
  return out;
}

bool Text::content_at(std::size_t offset) const {
  return std::upper_bound(runs_.begin(), runs_.end(), offset,
                          [](std::size_t at, const Run& r) { return at < r.end; })
      ->content;
}

bool is_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

Text stripped(const Text& text, std::string_view characters, bool left, bool right) {
  const std::string_view bytes = text.view();
  std::size_t start = 0, end = bytes.size();
  while (left && start < end) {
    std::size_t next = start;
    if (!strips(characters, next_code_point(bytes, next))) break;
    start = next;
  }
  while (right && end > start) {
    std::size_t before = end - 1;
    while ((static_cast<unsigned char>(bytes[before]) & 0xC0) == 0x80) --before;
    std::size_t at = before;
    if (!strips(characters, next_code_point(bytes, at))) break;
    end = before;
  }
  return text.slice(start, end - start);
}

Text upper(const Text& text) {
  return mapped(text, append_upper);
}
Text lower(const Text& text) {
  return mapped(text, append_lower);
}

Text capitalized(const Text& text) {
  return mapped(text, [first = true](std::string& out, char32_t c) mutable {
    first ? append_upper(out, c) : append_lower(out, c);
    first = false;
  });
}

Text titled(const Text& text) {
  return mapped(text, [inside = false](std::string& out, char32_t c) mutable {
    inside ? append_lower(out, c) : append_upper(out, c);
    inside = is_cased(c);
  });
}

Text titled_words(const Text& text) {
  return mapped(text, [inside = false](std::string& out, char32_t c) mutable {
    const bool separates = is_space(c) || has("-({[<", c);
    inside ? append_lower(out, c) : append_upper(out, c);
    inside = !separates;
  });
}

Text replaced(const Text& text, const Text& old, const Text& by, std::size_t count_max) {
  Text out;
  std::size_t at = 0;
  if (old.empty()) {  // Python puts `by` in front of every character and at the end
    const std::vector<std::size_t> offsets = character_offsets(text.view());
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      if (i < count_max) out.append(by);
      if (i + 1 < offsets.size()) out.append(text.slice(offsets[i], offsets[i + 1] - offsets[i]));
    }
    return out;
  }
  for (std::size_t n = 0; n < count_max; ++n) {
    const std::size_t found = text.bytes().find(old.bytes(), at);
    if (found == std::string::npos) break;
    out.append(text.slice(at, found - at));
    out.append(by);
    at = found + old.size();
  }
  out.append(text.slice(at));
  return out;
}

std::vector<std::size_t> character_offsets(std::string_view text) {
  std::vector<std::size_t> offsets;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80) offsets.push_back(at);
  }
  offsets.push_back(text.size());
  return offsets;
}

std::vector<Text> lines_of(const Text& text) {
  std::vector<Text> lines;
  const std::string_view bytes = text.view();
  std::size_t start = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t end = at;
    const char32_t c = next_code_point(bytes, at);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 ||
                      c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.slice(start, end - start));
    start = at;
  }
  if (start < bytes.size()) lines.push_back(text.slice(start));
  return lines;
}

}  // namespace baton::jinja
