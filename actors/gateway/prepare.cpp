#include "actors/gateway/prepare.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/utf8.h"

namespace baton {
namespace {

constexpr size_t kSentenceBytesMax = 500;  // a template may raise with text of any length

std::string clipped(const std::string& sentence) {
  if (sentence.size() <= kSentenceBytesMax) return sentence;
  const std::string_view kept = std::string_view(sentence).substr(0, kSentenceBytesMax);
  return std::string(kept.substr(0, valid_utf8_prefix(kept))) + "...";
}

Prepared refused(ErrorCode code, std::string sentence) {
  Prepared out;
  out.refused = true;
  out.refusal = {code, std::move(sentence), 0};
  return out;
}

Result<std::vector<TokenId>> ids_of_chat(const ModelText& text, const Submit& submit) {
  if (!text.chat) {
    return Error{ErrorCode::unsupported,
                 "messages are given, but this model has no chat template; expected text or ids"};
  }
  std::vector<std::pair<std::string, std::string>> messages;
  for (size_t i = 0; i < submit.messages.size(); ++i) {
    const ChatMessage& message = submit.messages[i];
    if (const size_t valid = valid_utf8_prefix(message.content); valid != message.content.size()) {
      return Error{ErrorCode::invalid_argument,
                   fmt::format("messages[{}].content is not UTF-8 from byte {} on; expected UTF-8",
                               i, valid)};
    }
    messages.emplace_back(message.role, message.content);
  }
  ChatInput input;
  input.messages = chat_messages(messages);
  const Result<std::vector<PromptSegment>> segments = text.chat->render(input);
  if (!segments) return Error{segments.error().code, "messages: " + segments.error().text};
  return encode_chat(text.tokenizer, *segments);
}

Result<std::vector<TokenId>> ids_of(const ModelText& text, const Submit& submit) {
  if (!submit.ids.empty()) return submit.ids;
  if (!submit.messages.empty()) return ids_of_chat(text, submit);
  Result<std::vector<TokenId>> ids = text.tokenizer.encode_prompt(submit.text, false);
  if (!ids) return Error{ids.error().code, "text: " + ids.error().text};
  return ids;
}

}  // namespace

Prepared prepare(const ModelText& text, const Submit& submit, const SubmitRules& rules) {
  Result<std::vector<TokenId>> ids = ids_of(text, submit);
  if (!ids) {
    return refused(ids.error().code, clipped(ids.error().text));
  }
  if (std::optional<Refusal> fault = check_prompt(*ids, submit, rules)) {
    return refused(fault->code, fault->text);
  }
  Prepared out;
  out.ids = std::move(*ids);
  return out;
}

}  // namespace baton
