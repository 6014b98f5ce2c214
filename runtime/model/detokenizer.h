#pragma once

#include <cstdint>
#include <string>

#include "runtime/model/tokenizer.h"

namespace baton {

// Turns a stream of ids into text that never ends inside a character. Plain copyable state (at most
// three bytes wait), owned by whoever owns the stream; the tokenizer must outlive it.
//
// A maximal ill-formed part becomes one U+FFFD as soon as it is certain to be ill-formed (Unicode
// 3.9, as WHATWG decoders do). With `skip_special`, control tokens add nothing and do not break a
// character that is under way.
class Detokenizer {
 public:
  Detokenizer(const Tokenizer& tokenizer, bool skip_special)
      : tokenizer_(&tokenizer), skip_special_(skip_special) {}

  // The characters that this id completes. Precondition: tokenizer.contains(id).
  std::string push(TokenId id);
  // What is left at the end of the stream: "" or one U+FFFD. The state is then as new.
  std::string finish();

 private:
  void feed(unsigned char byte, std::string& out);

  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::uint8_t pending_size_ = 0;  // bytes of an unfinished character
  std::uint8_t needed_ = 0;        // continuation bytes it still needs
  std::uint8_t low_ = 0x80;        // range of the next continuation byte
  std::uint8_t high_ = 0xBF;
  char pending_[3] = {};
};

}  // namespace baton
