#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/gateway/validate.h"
#include "actors/protocol/gateway.h"
#include "runtime/model/chat_template.h"
#include "runtime/model/tokenizer.h"

namespace baton {

// The text side of the served model. Immutable; its members are thread-safe.
struct ModelText {
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;  // none: chat messages are refused
  std::vector<TokenId> eos_ids;      // end a completion unless the request says otherwise
};

// Worker pool -> gateway: a prompt as ids, or why it cannot be. The envelope carries the request.
struct Prepared {
  static constexpr MsgKind kind = MsgKind::prepared;
  std::vector<TokenId> ids;
  bool refused = false;
  Refusal refusal;
  BATON_FIELDS(ids, refused, refusal)
};

// Renders and tokenises the prompt of a Submit that check_submit() let pass: the one place where
// text becomes ids. Text of the client never yields a control token. Pure and thread-safe; takes
// up to a second for the longest prompts, so it runs on the worker pool.
Prepared prepare(const ModelText& text, const Submit& submit, const SubmitRules& rules);

}  // namespace baton
