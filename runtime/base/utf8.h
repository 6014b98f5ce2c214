#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace baton {

// Bytes of the longest prefix that is well-formed UTF-8 (no surrogates, no overlong forms). Pure.
std::size_t valid_utf8_prefix(std::string_view text) noexcept;
inline bool is_utf8(std::string_view text) noexcept {
  return valid_utf8_prefix(text) == text.size();
}

// The code point that starts at `at`, which then moves past it. Precondition: text is well-formed
// and at < text.size().
char32_t next_code_point(std::string_view text, std::size_t& at) noexcept;
// Appends a code point. Precondition: it is a Unicode scalar value.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace baton
