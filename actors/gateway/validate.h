#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "actors/protocol/gateway.h"
#include "runtime/base/limits.h"

namespace baton {

// What a Submit is held against.
struct SubmitRules {
  Limits limits;
  uint32_t context_max = 0;  // positions of one sequence: prompt and completion together
  TokenId vocabulary = 0;    // ids are [0, vocabulary)
};

// Why a Submit is refused before anything is computed, or nothing: every field against limits,
// vocabulary and context, the first fault found. Its sentence names the field, what it was and what
// would have been right, and quotes at most kEchoBytesMax bytes of the client's own text. Pure.
// Whether text is UTF-8 is left to prepare(), which reads all of it anyway.
std::optional<Refusal> check_submit(const Submit& submit, const SubmitRules& rules);

// The same for the prompt once it is ids, with the room that it leaves. Pure.
std::optional<Refusal> check_prompt(const std::vector<TokenId>& ids, const Submit& submit,
                                    const SubmitRules& rules);

// The budget of new tokens: what was asked for, or the rest of the context (T85). Precondition:
// check_prompt() found nothing.
uint32_t max_tokens_of(const Submit& submit, size_t prompt_tokens, const SubmitRules& rules);

// What Admit carries of the client's sampling: switches that mean "off" made equal, and with
// max_tokens 0 the prompt's log-probabilities switched on, since nothing else is asked for (T86).
SamplingParams sampling_of(const Submit& submit);

inline constexpr size_t kEchoBytesMax = 200;

// Text of others inside a sentence of ours: quoted, control characters and ill-formed bytes
// escaped, cut after kEchoBytesMax bytes of it at a character's edge.
std::string quoted_echo(std::string_view text);

}  // namespace baton
