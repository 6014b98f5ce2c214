#include "runtime/model/byte_alphabet.h"

#include <array>

#include "runtime/base/utf8.h"

namespace baton {
namespace {

constexpr int kCharacters = 0x144;  // the alphabet ends at U+0143

constexpr bool printable(int byte) {
  return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

// From character to byte; -1 for characters outside the alphabet.
constexpr std::array<int, kCharacters> make_table() {
  std::array<int, kCharacters> table{};
  for (int& entry : table) entry = -1;
  int next = 0x100;
  for (int byte = 0; byte < 256; ++byte) table[printable(byte) ? byte : next++] = byte;
  return table;
}

constexpr std::array<int, kCharacters> kByteOf = make_table();

}  // namespace

std::optional<std::string> bytes_of_alphabet(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t character = next_code_point(text, at);
    if (character >= kCharacters || kByteOf[character] < 0) return std::nullopt;
    bytes += static_cast<char>(kByteOf[character]);
  }
  return bytes;
}

}  // namespace baton
