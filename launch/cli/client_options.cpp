#include "launch/cli/client_options.h"

#include <algorithm>
#include <cstdio>

namespace baton::cli {

void ClientOptions::enroll(Command& command) {
  command.option("--endpoint,-e", endpoint, "Where the server listens for clients");
  command.option("--connect-timeout-ms", connect_timeout_ms, "How long to wait for it");
}

client::Options ClientOptions::of(const std::string& name) const {
  client::Options options;
  options.endpoint = endpoint;
  options.name = name;
  options.connect_timeout_ms = connect_timeout_ms;
  return options;
}

void GenerationOptions::enroll(Command& command) {
  command.option("--max-tokens,-m", max_tokens, "New tokens at most; -1: the rest of the context");
  command.option("--min-tokens", min_tokens, "No end before this many");
  command.option("--temperature,-t", temperature, "0 = the most likely token, always");
  command.option("--top-k", top_k, "Choose among the k most likely; 0 = off");
  command.option("--top-p", top_p, "Choose among the most likely with this probability in all");
  command.option("--min-p", min_p, "Leave out what is less likely than this times the best");
  command.option("--repetition-penalty", repetition_penalty, "Over prompt and answer; 1 = off");
  command.option("--presence-penalty", presence_penalty, "Over the answer");
  command.option("--frequency-penalty", frequency_penalty, "Over the answer");
  command.option("--seed", seed, "Same seed, same answer; -1: the server chooses one");
  command.option("--logprobs", logprobs,
                 "Log-probabilities: 0 of the tokens, k also of the k best");
  command.option("--deadline-ms", deadline_ms, "Give up after this long; 0 = never");
  command.option("--stop", stop, "End before this text (can be given several times)");
  command.flag("--ignore-eos", ignore_eos, "Go on after the model's end of sequence");
}

void GenerationOptions::enroll_choices(Command& command) {
  command.option("--choices,-n", choices, "Answers to each prompt, from one computation of it");
}

void GenerationOptions::fill(client::Request& request) const {
  if (max_tokens >= 0) request.max_tokens = static_cast<uint32_t>(max_tokens);
  request.min_tokens = static_cast<uint32_t>(min_tokens < 0 ? 0 : min_tokens);
  request.temperature = static_cast<float>(temperature);
  request.top_k = static_cast<int32_t>(top_k);
  request.top_p = static_cast<float>(top_p);
  request.min_p = static_cast<float>(min_p);
  request.repetition_penalty = static_cast<float>(repetition_penalty);
  request.presence_penalty = static_cast<float>(presence_penalty);
  request.frequency_penalty = static_cast<float>(frequency_penalty);
  if (seed >= 0) request.seed = static_cast<uint64_t>(seed);
  request.top_logprobs = static_cast<int32_t>(logprobs);
  request.deadline_ms = deadline_ms;
  request.ignore_eos = ignore_eos;
  request.stop = stop;
  request.n = static_cast<uint32_t>(std::clamp<int64_t>(choices, 0, UINT32_MAX));
}

int report_error(const std::string& verb, const client::Error& error) {
  std::fprintf(stderr, "baton %s: %s (%s)\n", verb.c_str(), error.text.c_str(), error.code.c_str());
  if (error.code == "busy") return kRetry;
  if (error.code == "unavailable" || error.code == "worker_lost") return kUnavailable;
  if (error.code == "internal" || error.code == "corrupt") return kInternal;
  return kUsage;
}

}  // namespace baton::cli
