#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace baton {

// GPT-2's alphabet: each byte is written as one printable character, itself or U+0100 onwards.

// The bytes that a token text of that alphabet stands for; nothing if it has another character.
// Precondition: text is UTF-8.
std::optional<std::string> bytes_of_alphabet(std::string_view text);

}  // namespace baton
