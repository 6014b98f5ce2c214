#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace baton::jinja {

// A string that remembers, byte by byte, what came from the template and what from the request.
// Always UTF-8; boundaries between the two lie between characters.
class Text {
 public:
  struct Run {
    std::size_t end = 0;  // offset behind its last byte
    bool content = false;
  };

  Text() = default;
  Text(std::string bytes, bool content);

  const std::string& bytes() const { return bytes_; }
  std::string_view view() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }  // neighbours differ; none is empty

  void append(std::string_view bytes, bool content);
  void append(const Text& other);  // precondition: other is not *this
  // The bytes from `start` on, `size` at most. Precondition: both ends lie between characters.
  Text slice(std::size_t start, std::size_t size = std::string::npos) const;
  bool content_at(std::size_t offset) const;  // precondition: offset < size()

 private:
  std::string bytes_;
  std::vector<Run> runs_;
};

// Pure helpers, in terms of Python's str. Offsets are in bytes, counts in characters.
Text stripped(const Text& text, std::string_view characters, bool left, bool right);
constexpr std::string_view kWhiteSpace = {};  // for `stripped`: what Python calls white space
Text upper(const Text& text);
Text lower(const Text& text);
Text capitalized(const Text& text);
Text titled(const Text& text);        // str.title()
Text titled_words(const Text& text);  // the filter: words end at white space and -({[<
Text replaced(const Text& text, const Text& old, const Text& by, std::size_t count_max);
bool is_space(char32_t character);
// Byte offsets of all characters, and of the end.
std::vector<std::size_t> character_offsets(std::string_view text);
// Lines without their ends, as str.splitlines().
std::vector<Text> lines_of(const Text& text);

}  // namespace baton::jinja
