#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/base/result.h"
#include "runtime/model/model_file.h"
#include "runtime/model/tokenizer.h"

namespace baton {

// A stretch of a rendered prompt. Content is what came from the request (message texts, names, tool
// schemas), also after filters and string methods; everything else is the template's own text.
struct PromptSegment {
  std::string text;
  bool is_content = false;

  friend bool operator==(const PromptSegment&, const PromptSegment&) = default;
};

// What a template sees. Well-known role names count as template text, any other string as content.
struct ChatInput {
  Json messages = Json::array();    // [{"role": ..., "content": ...}, ...]
  Json tools;                       // array, or null
  Json variables = Json::object();  // further top-level names, such as enable_thinking
  bool add_generation_prompt = true;
  std::int64_t now_unix_s = 0;  // for strftime_now, in UTC
};

// The messages of a plain conversation as ChatInput::messages: (role, content) pairs.
Json chat_messages(const std::vector<std::pair<std::string, std::string>>& messages);

// A compiled chat template: a bounded subset of Jinja with trim_blocks and lstrip_blocks. Owns its
// source and syntax tree; immutable, so `render` is thread-safe.
//
// Limits: source 256 KiB, 10^6 evaluation steps, nesting 64, range() 10^4, output 16 MiB. Passing
// one, a construct outside the subset, or raise_exception() is an Error with a sentence.
class ChatTemplate {
 public:
  // `bos` and `eos` are the texts of bos_token and eos_token. Error: bad_model, with line.
  static Result<ChatTemplate> compile(std::string source, std::string bos, std::string eos);
  // The template in a model file. not_found when it has none.
  static Result<ChatTemplate> load(const ModelFile& file, const Tokenizer& tokenizer);

  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // Errors: invalid_argument (the messages do not suit the template, or a limit was passed).
  // Neighbouring segments of one kind are joined; there are no empty segments.
  Result<std::vector<PromptSegment>> render(const ChatInput& input) const;

  const std::string& source() const;

 private:
  struct State;
  explicit ChatTemplate(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

// The whole prompt as one text, for people and logs.
std::string segments_text(const std::vector<PromptSegment>& segments);

enum class ChatEncoding {
  apart,   // each segment on its own: the ids of one segment never depend on another
  joined,  // text between two special tokens as one stretch, as training pipelines tokenise it
};

// The ids of a rendered prompt. Special tokens are recognised in template segments only, so content
// never yields a control token, in either encoding. Thread-safe.
Result<std::vector<TokenId>> encode_chat(const Tokenizer& tokenizer,
                                         const std::vector<PromptSegment>& segments,
                                         ChatEncoding encoding = ChatEncoding::apart);

}  // namespace baton
