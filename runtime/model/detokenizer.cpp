#include "runtime/model/detokenizer.h"

#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr char kReplacement[] = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string Detokenizer::push(TokenId id) {
  std::string out;
  if (skip_special_ && tokenizer_->is_control(id)) return out;
  for (const char c : tokenizer_->bytes(id)) feed(static_cast<unsigned char>(c), out);
  return out;
}

std::string Detokenizer::finish() {
  const bool unfinished = pending_size_ != 0;
  pending_size_ = 0;
  needed_ = 0;
  return unfinished ? kReplacement : "";
}

// One byte through the decoder of the WHATWG Encoding Standard.
void Detokenizer::feed(unsigned char byte, std::string& out) {
  if (needed_ != 0) {
    if (byte >= low_ && byte <= high_) {
      low_ = 0x80;
      high_ = 0xBF;
      if (--needed_ != 0) {
        CHECK(pending_size_ < sizeof pending_);
        pending_[pending_size_++] = static_cast<char>(byte);
        return;
      }
      out.append(pending_, pending_size_);
      out += static_cast<char>(byte);
      pending_size_ = 0;
      return;
    }
    out += kReplacement;  // for what was pending; this byte starts anew below
    pending_size_ = 0;
    needed_ = 0;
  }
  low_ = 0x80;
  high_ = 0xBF;
  if (byte < 0x80) {
    out += static_cast<char>(byte);
    return;
  }
  if (byte < 0xC2 || byte > 0xF4) {
    out += kReplacement;
    return;
  }
  needed_ = byte >= 0xF0 ? 3 : byte >= 0xE0 ? 2 : 1;
  if (byte == 0xE0) low_ = 0xA0;
  if (byte == 0xED) high_ = 0x9F;
  if (byte == 0xF0) low_ = 0x90;
  if (byte == 0xF4) high_ = 0x8F;
  pending_[pending_size_++] = static_cast<char>(byte);
}

}  // namespace baton
