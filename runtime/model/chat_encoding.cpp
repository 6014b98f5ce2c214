#include <utility>

#include "runtime/model/chat_template.h"

namespace baton {
namespace {

Result<std::vector<TokenId>> encode_apart(const Tokenizer& tokenizer,
                                          const std::vector<PromptSegment>& segments) {
  std::vector<TokenId> ids;
  for (const PromptSegment& segment : segments) {
    const Result<std::vector<TokenId>> part = tokenizer.encode(segment.text, !segment.is_content);
    if (!part) return part.error();
    ids.insert(ids.end(), part->begin(), part->end());
  }
  return ids;
}

// Specials are cut out of template segments; what lies between two of them is one stretch.
Result<std::vector<TokenId>> encode_joined(const Tokenizer& tokenizer,
                                           const std::vector<PromptSegment>& segments) {
  std::vector<TokenId> ids;
  std::string stretch;
  const auto flush = [&]() -> Result<void> {
    const Result<std::vector<TokenId>> part = tokenizer.encode(stretch, false);
    if (!part) return part.error();
    ids.insert(ids.end(), part->begin(), part->end());
    stretch.clear();
    return {};
  };
  for (const PromptSegment& segment : segments) {
    std::size_t at = 0;
    while (!segment.is_content) {
      const std::optional<SpecialSpan> special = tokenizer.find_special(segment.text, at);
      if (!special) break;
      stretch.append(segment.text, at, special->start - at);
      if (const Result<void> done = flush(); !done) return done.error();
      ids.push_back(special->id);
      at = special->start + special->size;
    }
    stretch.append(segment.text, at);
  }
  if (const Result<void> done = flush(); !done) return done.error();
  return ids;
}

}  // namespace

Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer,
                                         const std::vector<PromptSegment>& segments,
                                         ChatEncoding encoding) {
  return encoding == ChatEncoding::apart ? encode_apart(tokenizer, segments)
                                         : encode_joined(tokenizer, segments);
}

}  // namespace baton
