#include "runtime/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "runtime/base/check.h"
#include "runtime/base/limits.h"

namespace baton {
namespace {

bool has_penalties(const SamplingParams& p) {
  return p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
}

}  // namespace

Sampler::Sampler(const Ops& ops, std::size_t vocabulary, std::size_t context_max)
    : ops_(ops), ids_(vocabulary), slots_(vocabulary) {
  constexpr std::size_t kAlignment = 64;
  counts_.reserve(std::min(vocabulary, context_max));
  biases_.reserve(Limits{}.logit_bias_max);
  std::size_t space = sample_scratch_bytes(vocabulary) + kAlignment;
  scratch_memory_.resize(space);
  void* start = scratch_memory_.data();
  scratch_ = static_cast<std::byte*>(std::align(kAlignment, space - kAlignment, start, space));
  CHECK(scratch_ != nullptr);
}

void Sampler::begin_result(const BatchRow& row, std::size_t vocabulary, RowResult& result) {
  const auto entries = [&](bool wanted, int32_t k) {
    return wanted ? std::min(static_cast<std::size_t>(std::max(k, 0)), vocabulary) : 0;
  };
  const SamplingParams& p = row.sampling;
  const std::size_t scored = p.prompt_logprobs >= 0 ? row.tokens.size() - 1 : 0;
  result.key = row.key;
  result.numerical_error = false;
  result.samples.resize(row.samples.size());
  for (std::size_t i = 0; i < row.samples.size(); ++i) {
    RowSample& sample = result.samples[i];
    sample.choice = row.samples[i];
    sample.token = 0;
    sample.logprob = 0;
    sample.top.assign(entries(true, p.top_logprobs), TokenLogprob{});
  }
  result.prompt_logprobs.assign(scored, 0.0f);
  result.prompt_top.resize(p.prompt_logprobs > 0 ? scored : 0);
  for (std::vector<TokenLogprob>& top : result.prompt_top) {
    top.assign(entries(true, p.prompt_logprobs), TokenLogprob{});
  }
}

bool Sampler::choose(const BatchRow& row, std::span<const float> logits,
                     const VocabSummary& summary, RowResult& result) {
  if (!summary.finite) return false;
  SampleArgs args = arguments(row);
  const bool plain_greedy = args.temperature == 0 && args.counts_n == 0 && args.biases_n == 0;
  for (RowSample& chosen : result.samples) {
    args.uniform = uniform_of(row, chosen.choice);
    const int32_t token =
        plain_greedy ? summary.argmax : sample(ops_, logits.data(), logits.size(), args, scratch_);
    if (token < 0) return false;
    chosen.token = token;
    chosen.logprob = log_probability(summary, logits[static_cast<std::size_t>(token)]);
    if (&chosen == &result.samples.front()) {
      best_of(logits, summary, chosen.top);
    } else {
      chosen.top = result.samples.front().top;  // of the same logits
    }
  }
  return true;
}

bool Sampler::score_prompt(const BatchRow& row, std::size_t index, std::span<const float> logits,
                           const VocabSummary& summary, RowResult& result) {
  if (!summary.finite) return false;
  const auto token = static_cast<std::size_t>(row.tokens[index + 1]);
  result.prompt_logprobs[index] = log_probability(summary, logits[token]);
  if (!result.prompt_top.empty()) best_of(logits, summary, result.prompt_top[index]);
  return true;
}

void Sampler::best_of(std::span<const float> logits, const VocabSummary& summary,
                      std::vector<TokenLogprob>& top) {
  if (top.empty()) return;
  if (top.size() == 1) {  // known already
    const auto best = static_cast<std::size_t>(summary.argmax);
    top[0] = {summary.argmax, log_probability(summary, logits[best])};
    return;
  }
  const std::size_t found = ops_.top_k(logits.data(), logits.size(), top.size(), ids_.data());
  CHECK(found == top.size());
  for (std::size_t i = 0; i < found; ++i) {
    top[i] = {ids_[i], log_probability(summary, logits[static_cast<std::size_t>(ids_[i])])};
  }
}

// Each token of the history once, with how often the output has it.
void Sampler::count_tokens(const BatchRow& row) {
  for (const TokenCount& count : counts_) slots_[static_cast<std::size_t>(count.id)] = 0;
  counts_.clear();
  if (!has_penalties(row.sampling)) return;
  for (std::size_t i = 0; i < row.history.size(); ++i) {
    const TokenId id = row.history[i];
    CHECK(id >= 0 && static_cast<std::size_t>(id) < slots_.size());
    uint32_t& slot = slots_[static_cast<std::size_t>(id)];
    if (slot == 0) {
      counts_.push_back({id, 0});
      slot = static_cast<uint32_t>(counts_.size());
    }
    if (i >= row.prompt_tokens) ++counts_[slot - 1].output_count;
  }
}

SampleArgs Sampler::arguments(const BatchRow& row) {
  const SamplingParams& p = row.sampling;
  count_tokens(row);
  biases_.clear();
  for (const auto& [id, bias] : p.logit_bias) biases_.push_back({id, bias});
  SampleArgs args;
  args.counts = counts_.data();
  args.counts_n = counts_.size();
  args.repetition_penalty = p.repetition_penalty;
  args.frequency_penalty = p.frequency_penalty;
  args.presence_penalty = p.presence_penalty;
  args.biases = biases_.data();
  args.biases_n = biases_.size();
  args.temperature = p.temperature;
  args.top_k = p.top_k;
  args.top_p = p.top_p;
  args.min_p = p.min_p;
  return args;
}

double Sampler::uniform_of(const BatchRow& row, uint32_t choice) {
  RandomKey key;
  key.seed = row.sampling.seed;
  key.position = row.position + static_cast<uint32_t>(row.tokens.size());
  key.choice = choice;
  return uniform(key);
}

}  // namespace baton
