#include "actors/gateway/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/base/utf8.h"

namespace baton {
namespace {

using Fault = std::optional<Refusal>;

constexpr int64_t kDeadlineMsMax = int64_t{30} * 24 * 3600 * 1000;
constexpr size_t kNameBytesMax = 256;  // tenant, idempotency key, role
constexpr int32_t kPriorityMax = 1000;
constexpr float kTemperatureMax = 2;
constexpr float kPenaltyMax = 2;
constexpr float kBiasMax = 100;

constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool"};

Refusal wrong(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text), 0};
}

Fault number(const char* field, double got, bool right, const char* expected) {
  if (std::isfinite(got) && right) return std::nullopt;
  return wrong(fmt::format("{} is {}; expected {}", field, got, expected));
}

Fault count(const char* field, size_t got, size_t max, const char* unit) {
  if (got <= max) return std::nullopt;
  return wrong(fmt::format("{} has {} {}; at most {} are accepted", field, got, unit, max));
}

Fault token_id(const std::string& field, int64_t id, TokenId vocabulary) {
  if (id >= 0 && id < vocabulary) return std::nullopt;
  return wrong(
      fmt::format("{} is {}; token ids of this model are 0 to {}", field, id, vocabulary - 1));
}

Fault token_ids(const char* field, const std::vector<TokenId>& ids, TokenId vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= vocabulary) {
      return token_id(fmt::format("{}[{}]", field, i), ids[i], vocabulary);
    }
  }
  return std::nullopt;
}

Fault name(const char* field, const std::string& text) {
  if (Fault fault = count(field, text.size(), kNameBytesMax, "bytes")) return fault;
  if (is_utf8(text)) return std::nullopt;
  return wrong(fmt::format("{} is {}; expected UTF-8", field, quoted_echo(text)));
}

Fault check_messages(const Submit& submit, const Limits& limits) {
  if (Fault fault = count("messages", submit.messages.size(), limits.messages_max, "messages")) {
    return fault;
  }
  size_t bytes = 0;
  for (size_t i = 0; i < submit.messages.size(); ++i) {
    const ChatMessage& message = submit.messages[i];
    if (std::find(std::begin(kRoles), std::end(kRoles), message.role) == std::end(kRoles)) {
      return wrong(fmt::format(
          "messages[{}].role is {}; expected system, developer, user, assistant or tool", i,
          quoted_echo(message.role)));
    }
    bytes += message.content.size();
  }
  return count("messages", bytes, limits.prompt_bytes_max, "bytes of content");
}

Fault check_form(const Submit& submit, const SubmitRules& rules) {
  const int forms = !submit.ids.empty() + !submit.text.empty() + !submit.messages.empty();
  if (forms == 0) {
    return wrong("the prompt is empty; give one of ids, text or messages, with at least one item");
  }
  if (forms > 1) {
    return wrong(fmt::format("{} of ids, text and messages are given; expected exactly one",
                             forms == 2 ? "two" : "all three"));
  }
  if (Fault fault = count("text", submit.text.size(), rules.limits.prompt_bytes_max, "bytes")) {
    return fault;
  }
  if (Fault fault = check_messages(submit, rules.limits)) return fault;
  if (submit.ids.empty()) return std::nullopt;
  return check_prompt(submit.ids, submit, rules);
}

Fault check_choices(const Submit& submit, const Limits& limits) {
  if (submit.n == 0 || submit.n > limits.choices_max) {
    return wrong(fmt::format("n is {}; expected 1 to {}", submit.n, limits.choices_max));
  }
  return std::nullopt;
}

Fault check_budget(const Submit& submit, const SubmitRules& rules) {
  if (submit.has_max_tokens && submit.max_tokens > rules.context_max) {
    return wrong(fmt::format("max_tokens is {}; the context of this model has {} positions",
                             submit.max_tokens, rules.context_max));
  }
  const uint32_t most = submit.has_max_tokens ? submit.max_tokens : rules.context_max;
  if (submit.min_tokens > most) {
    return wrong(fmt::format("min_tokens is {}; expected at most {} ({})", submit.min_tokens, most,
                             submit.has_max_tokens ? "max_tokens" : "the context"));
  }
  if (submit.priority < -kPriorityMax || submit.priority > kPriorityMax) {
    return wrong(fmt::format("priority is {}; expected {} to {}", submit.priority, -kPriorityMax,
                             kPriorityMax));
  }
  if (submit.deadline_ms < 0 || submit.deadline_ms > kDeadlineMsMax) {
    return wrong(fmt::format("deadline_ms is {}; expected 0 (none) to {} milliseconds",
                             submit.deadline_ms, kDeadlineMsMax));
  }
  return std::nullopt;
}

Fault check_logprobs(const char* field, int32_t got, const Limits& limits) {
  const auto max = static_cast<int32_t>(limits.top_logprobs_max);
  if (got >= -1 && got <= max) return std::nullopt;
  return wrong(fmt::format("{} is {}; expected -1 (none) to {}", field, got, max));
}

Fault check_bias(const SamplingParams& sampling, const SubmitRules& rules) {
  const auto& biases = sampling.logit_bias;
  if (Fault fault = count("logit_bias", biases.size(), rules.limits.logit_bias_max, "entries")) {
    return fault;
  }
  std::set<TokenId> seen;
  for (size_t i = 0; i < biases.size(); ++i) {
    const auto [id, bias] = biases[i];
    const std::string field = fmt::format("logit_bias[{}]", i);
    if (Fault fault = token_id(field + " id", id, rules.vocabulary)) return fault;
    if (!seen.insert(id).second) {
      return wrong(fmt::format("{} id is {} again; expected each id once", field, id));
    }
    if (Fault fault = number((field + " value").c_str(), bias, std::abs(bias) <= kBiasMax,
                             "a number from -100 to 100")) {
      return fault;
    }
  }
  return std::nullopt;
}

Fault check_sampling(const SamplingParams& s, const SubmitRules& rules) {
  const Fault faults[] = {
      number("temperature", s.temperature, s.temperature >= 0 && s.temperature <= kTemperatureMax,
             "a number from 0 (greedy) to 2"),
      number("top_p", s.top_p, s.top_p > 0 && s.top_p <= 1, "a number above 0, at most 1"),
      number("min_p", s.min_p, s.min_p >= 0 && s.min_p <= 1, "a number from 0 to 1"),
      number("top_k", s.top_k, s.top_k >= -1, "a count, or 0 or -1 for none"),
      number("repetition_penalty", s.repetition_penalty, s.repetition_penalty > 0,
             "a finite number above 0"),
      number("presence_penalty", s.presence_penalty, std::abs(s.presence_penalty) <= kPenaltyMax,
             "a number from -2 to 2"),
      number("frequency_penalty", s.frequency_penalty, std::abs(s.frequency_penalty) <= kPenaltyMax,
             "a number from -2 to 2"),
      check_logprobs("top_logprobs", s.top_logprobs, rules.limits),
      check_logprobs("prompt_logprobs", s.prompt_logprobs, rules.limits),
      check_bias(s, rules),
  };
  for (const Fault& fault : faults) {
    if (fault) return fault;
  }
  return std::nullopt;
}

Fault check_stops(const Submit& submit, const SubmitRules& rules) {
  if (Fault fault = count("stop", submit.stop.size(), rules.limits.stop_strings_max, "strings")) {
    return fault;
  }
  for (size_t i = 0; i < submit.stop.size(); ++i) {
    const std::string& stop = submit.stop[i];
    const std::string field = fmt::format("stop[{}]", i);
    if (stop.empty()) return wrong(field + " is empty; a stop string needs at least one character");
    if (Fault fault =
            count(field.c_str(), stop.size(), rules.limits.stop_string_bytes_max, "bytes")) {
      return fault;
    }
    if (!is_utf8(stop)) {
      return wrong(fmt::format("{} is {}; expected UTF-8", field, quoted_echo(stop)));
    }
  }
  if (Fault fault =
          count("stop_ids", submit.stop_ids.size(), rules.limits.stop_ids_max, "token ids")) {
    return fault;
  }
  return token_ids("stop_ids", submit.stop_ids, rules.vocabulary);
}

}  // namespace

std::optional<Refusal> check_submit(const Submit& submit, const SubmitRules& rules) {
  if (Fault fault = check_choices(submit, rules.limits)) return fault;
  if (Fault fault = check_budget(submit, rules)) return fault;
  if (Fault fault = check_sampling(submit.sampling, rules)) return fault;
  if (Fault fault = check_stops(submit, rules)) return fault;
  if (Fault fault = name("tenant", submit.tenant)) return fault;
  if (Fault fault = name("idempotency_key", submit.idempotency_key)) return fault;
  return check_form(submit, rules);
}

std::optional<Refusal> check_prompt(const std::vector<TokenId>& ids, const Submit& submit,
                                    const SubmitRules& rules) {
  if (ids.empty()) {
    return wrong("the prompt has no tokens; expected at least one");
  }
  const bool scored_only = submit.has_max_tokens && submit.max_tokens == 0;
  const size_t prompt_max = scored_only ? rules.context_max : rules.context_max - 1;
  if (ids.size() > prompt_max) {
    return Refusal{ErrorCode::context_too_long,
                   fmt::format("the prompt has {} tokens; the context of this model has {} "
                               "positions, so at most {} fit{}",
                               ids.size(), rules.context_max, prompt_max,
                               scored_only ? "" : " beside one new token"),
                   0};
  }
  if (submit.has_max_tokens && submit.max_tokens > rules.context_max - ids.size()) {
    return Refusal{ErrorCode::context_too_long,
                   fmt::format("the prompt has {} tokens and max_tokens is {}, together {}; the "
                               "context of this model has {} positions: ask for at most {}",
                               ids.size(), submit.max_tokens, ids.size() + submit.max_tokens,
                               rules.context_max, rules.context_max - ids.size()),
                   0};
  }
  const uint32_t budget = max_tokens_of(submit, ids.size(), rules);
  if (submit.min_tokens > budget) {
    return wrong(fmt::format("min_tokens is {}; the prompt of {} tokens leaves {} positions",
                             submit.min_tokens, ids.size(), budget));
  }
  return token_ids("ids", ids, rules.vocabulary);
}

uint32_t max_tokens_of(const Submit& submit, size_t prompt_tokens, const SubmitRules& rules) {
  if (submit.has_max_tokens) return submit.max_tokens;
  return rules.context_max - static_cast<uint32_t>(prompt_tokens);
}

SamplingParams sampling_of(const Submit& submit) {
  SamplingParams sampling = submit.sampling;
  sampling.top_k = std::max(sampling.top_k, 0);
  if (submit.has_max_tokens && submit.max_tokens == 0) {
    sampling.prompt_logprobs = std::max(sampling.prompt_logprobs, 0);
  }
  return sampling;
}

std::string quoted_echo(std::string_view text) {
  std::string out = "'";
  size_t at = 0;
  while (at < text.size() && at < kEchoBytesMax) {
    const std::string_view rest = text.substr(at);
    const auto byte = static_cast<unsigned char>(rest[0]);
    const size_t well_formed = valid_utf8_prefix(rest.substr(0, 4));
    if (byte < 0x20 || byte == 0x7F || well_formed == 0) {
      out += fmt::format("\\x{:02x}", byte);
      ++at;
      continue;
    }
    size_t next = at;
    next_code_point(text.substr(0, at + well_formed), next);
    if (next > kEchoBytesMax) break;
    out += text.substr(at, next - at);
    at = next;
  }
  out += '\'';
  if (at < text.size()) out += fmt::format(" ({} bytes in all)", text.size());
  return out;
}

}  // namespace baton
