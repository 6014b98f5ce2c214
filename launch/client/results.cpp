#include "launch/client/results.h"

#include <utility>

namespace baton::client {
namespace {

Usage usage_of(const ClientDone& done) {
  const baton::Usage& u = done.usage;
  return {.prompt_tokens = u.prompt_tokens,
          .cached_tokens = u.cached_tokens,
          .completion_tokens = u.completion_tokens,
          .kv_bytes = u.kv_bytes,
          .queue_us = u.queue_us,
          .prefill_us = u.prefill_us,
          .transfer_us = u.transfer_us,
          .ttft_us = done.ttft_us,
          .total_us = done.total_us,
          .prefill_rank = u.prefill_rank,
          .decode_rank = u.decode_rank,
          .attempts = u.attempts,
          .weights_version = u.weights_version,
          .exact = u.exact};
}

const char* finish_name(Finish finish) {
  switch (finish) {
    case Finish::none: return "none";
    case Finish::stop: return "stop";
    case Finish::length: return "length";
    case Finish::cancelled: return "cancelled";
    case Finish::error: return "error";
  }
  return "unknown";
}

Choice choice_of(ChoiceResult& source) {
  Choice choice;
  choice.ids = std::move(source.ids);
  choice.logprobs = std::move(source.logprobs);
  choice.top = tops_of(source.top);
  choice.text = std::move(source.text);
  choice.finish = finish_name(source.finish);
  return choice;
}

}  // namespace

std::vector<std::vector<TopToken>> tops_of(const std::vector<std::vector<TokenLogprob>>& source) {
  std::vector<std::vector<TopToken>> tops;
  tops.reserve(source.size());
  for (const auto& entry : source) {
    auto& top = tops.emplace_back();
    for (const TokenLogprob& t : entry) top.push_back({t.id, t.logprob});
  }
  return tops;
}

Result result_of(ClientDone& done) {
  Result result;
  result.prompt_ids = std::move(done.prompt_ids);
  result.prompt_logprobs = std::move(done.prompt_logprobs);
  result.prompt_top = tops_of(done.prompt_top);
  for (size_t c = 0; c < done.choices.size(); ++c) {
    Choice choice = choice_of(done.choices[c]);
    if (c == 0) {
      static_cast<Choice&>(result) = std::move(choice);
    } else {
      result.more.push_back(std::move(choice));
    }
  }
  result.usage = usage_of(done);
  return result;
}

}  // namespace baton::client
