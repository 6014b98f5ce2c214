#include "tests/unit/engine/engine_rig.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "runtime/base/hash.h"

namespace baton {
namespace {

bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

bool same_entries(const std::vector<std::vector<TokenLogprob>>& a,
                  const std::vector<std::vector<TokenLogprob>>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) {
      return p.id == q.id && std::memcmp(&p.logprob, &q.logprob, sizeof p.logprob) == 0;
    });
  });
}

Compute& loader() {
  static Compute compute(TeamOptions{});
  return compute;
}

}  // namespace

std::string tiny_model_path(const std::string& name) {
  if (!name.empty() && name.front() == '/') return name;
  static const std::string folder = [] {
    const std::string made = std::string(BATON_BINARY_DIR) + "/tests/tiny-models";
    const std::string script =
        std::string(BATON_SOURCE_DIR) + "/tests/oracle/make_models '" + made + "' >/dev/null";
    const bool done = std::system(("/usr/bin/python3 " + script).c_str()) == 0 ||
                      std::system(("python3 " + script).c_str()) == 0;
    CHECK_MSG(done, "tests/oracle/make_models failed: it needs python3 with numpy");
    return made;
  }();
  std::string file = name;
  std::replace(file.begin(), file.end(), ' ', '-');
  return folder + "/" + file + ".gguf";
}

std::shared_ptr<const LlamaWeights> tiny_weights(const std::string& name, const PartOf& of) {
  static std::map<std::string, std::shared_ptr<const LlamaWeights>> cache;
  const std::string key = name + " " + std::to_string(of.tensor_parallel) + " " +
                          std::to_string(of.pipeline_parallel) + " " + std::to_string(of.rank);
  std::shared_ptr<const LlamaWeights>& weights = cache[key];
  if (!weights) {
    const Result<ModelFile> file = ModelFile::open(tiny_model_path(name));
    weights = LlamaWeights::load(*file, loader(), {}, of).value();
  }
  return weights;
}

bool same_bits(const Trace& a, const Trace& b) {
  return a.tokens == b.tokens && a.numerical_error == b.numerical_error &&
         same_floats(a.logprobs, b.logprobs) && same_floats(a.prompt_logprobs, b.prompt_logprobs) &&
         std::equal(a.logits.begin(), a.logits.end(), b.logits.begin(), b.logits.end(),
                    same_floats) &&
         same_entries(a.top, b.top) && same_entries(a.prompt_top, b.prompt_top);
}

bool same_bits(const std::vector<Trace>& a, const std::vector<Trace>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const Trace& x, const Trace& y) { return same_bits(x, y); });
}

EngineRig::EngineRig(const RigOptions& options) {
  CpuEngineOptions engine;
  engine.activations = options.mode;
  engine.kv_dtype = options.kv_dtype;
  engine.block_tokens = options.block_tokens;
  engine.kv_blocks = options.kv_blocks > 0 ? options.kv_blocks : 16384 / options.block_tokens;
  engine.step_tokens_max = options.step_tokens_max;
  engine.ops = ops_for(options.isa);
  CHECK(engine.ops != nullptr);
  engine.on_logits = [this](uint64_t key, std::span<const float> logits) {
    const std::lock_guard lock(mutex_);
    logits_[key].assign(logits.begin(), logits.end());
  };
  const PartOf of{options.tensor_parallel, options.pipeline_parallel, 0};
  const auto weights = options.weights ? options.weights : tiny_weights(options.model, of);
  TeamOptions team;
  team.threads = options.threads;
  if (of.ranks() > 1) {
    followers_ = std::make_unique<Followers>(
        engine, of, team, 0, [&](const PartOf& part) { return tiny_weights(options.model, part); });
  }
  driver_ = EngineDriver::create(weights, std::make_shared<Compute>(team), engine).value();
}

BatchRow EngineRig::next_row(Leg& leg, uint32_t new_tokens, uint64_t key) const {
  const Sequence& s = leg.sequence;
  const auto prompt = static_cast<uint32_t>(s.prompt.size());
  BatchRow row;
  row.key = key;
  row.position = leg.done;
  row.blocks = leg.blocks;
  row.samples = {s.choice};
  row.sampling = s.sampling;
  row.prompt_tokens = prompt;
  row.history = s.prompt;
  row.history.insert(row.history.end(), leg.trace.tokens.begin(), leg.trace.tokens.end());
  uint32_t size = 1;
  if (leg.done < prompt)
    size = s.chunk > 0 ? std::min(s.chunk, prompt - leg.done) : prompt - leg.done;
  row.tokens.assign(row.history.begin() + leg.done, row.history.begin() + leg.done + size);
  leg.done += size;
  if (leg.done < prompt || new_tokens == 0) row.samples.clear();
  if (leg.done > prompt) row.sampling.prompt_logprobs = -1;
  return row;
}

void EngineRig::take(Leg& leg, RowResult result) {
  Trace& trace = leg.trace;
  trace.numerical_error = trace.numerical_error || result.numerical_error;
  trace.prompt_logprobs.insert(trace.prompt_logprobs.end(), result.prompt_logprobs.begin(),
                               result.prompt_logprobs.end());
  std::move(result.prompt_top.begin(), result.prompt_top.end(),
            std::back_inserter(trace.prompt_top));
  if (!logits_.contains(result.key)) return;
  trace.logits.push_back(std::move(logits_[result.key]));
  RowSample& sample = result.samples.at(0);
  trace.tokens.push_back(sample.token);
  trace.logprobs.push_back(sample.logprob);
  trace.top.push_back(std::move(sample.top));
}

std::vector<Trace> EngineRig::run(const std::vector<Sequence>& sequences, uint32_t new_tokens) {
  driver_->reset_blocks();
  std::vector<Leg> legs;
  for (const Sequence& s : sequences) {
    legs.push_back({s, driver_->take_blocks(s.prompt.size() + new_tokens)});
  }
  advance(legs, new_tokens);
  std::vector<Trace> traces;
  for (Leg& leg : legs) traces.push_back(std::move(leg.trace));
  return traces;
}

void EngineRig::advance(std::vector<Leg>& legs, uint32_t new_tokens) {
  bool all_done = false;
  for (uint32_t step = 0; !all_done; ++step) {
    std::vector<BatchRow> rows;
    all_done = true;
    for (std::size_t i = 0; i < legs.size(); ++i) {
      Leg& leg = legs[i];
      const bool done = leg.trace.numerical_error || (leg.done >= leg.sequence.prompt.size() &&
                                                      leg.trace.tokens.size() >= new_tokens);
      all_done = all_done && done;
      if (!done && step >= leg.sequence.start) rows.push_back(next_row(leg, new_tokens, i));
    }
    if (rows.empty()) continue;
    logits_.clear();
    for (RowResult& result : driver_->step(std::move(rows)).rows) {
      take(legs[result.key], std::move(result));
    }
  }
}

std::vector<TokenId> made_up_prompt(std::size_t size, uint64_t seed, uint32_t vocabulary) {
  std::vector<TokenId> out(size);
  for (std::size_t i = 0; i < size; ++i) {
    out[i] = static_cast<TokenId>(mix64(seed * 1'000'003 + i) % vocabulary);
  }
  return out;
}

}  // namespace baton
