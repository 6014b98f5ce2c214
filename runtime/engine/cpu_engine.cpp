#include "runtime/engine/cpu_engine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "kernels/fp_mode.h"
#include "runtime/actor/wire.h"
#include "runtime/base/check.h"

namespace baton {
namespace {

Error invalid(std::string text) {
  return {ErrorCode::invalid_argument, std::move(text)};
}

Result<void> check_options(const CpuEngineOptions& options, const ModelConfig& config) {
  if (options.block_tokens != 16 && options.block_tokens != 32 && options.block_tokens != 64) {
    return invalid("--block-size is " + std::to_string(options.block_tokens) +
                   "; expected 16, 32 or 64 tokens");
  }
  if (options.context_max > config.context) {
    return invalid("--max-model-len is " + std::to_string(options.context_max) +
                   ", but the model was trained for " + std::to_string(config.context) +
                   " positions: choose at most that");
  }
  if (options.step_tokens_max == 0) {
    return invalid("--max-num-batched-tokens is 0; expected at least 1");
  }
  return {};
}

KvGeometry geometry_of(const CpuEngineOptions& options, const ModelConfig& config) {
  KvGeometry geometry;
  geometry.layers = config.layers;
  geometry.kv_heads = config.kv_heads;
  geometry.head_dim = config.head_dim;
  geometry.block_tokens = options.block_tokens;
  geometry.dtype = options.kv_dtype;
  return geometry;
}

}  // namespace

Result<std::unique_ptr<CpuEngine>> CpuEngine::create(std::shared_ptr<const LlamaWeights> weights,
                                                     std::shared_ptr<Compute> compute,
                                                     const CpuEngineOptions& options, Post post) {
  const ModelConfig& config = weights->config();
  if (Result<void> checked = check_options(options, config); !checked) return checked.error();
  const KvGeometry geometry = geometry_of(options, config);
  const uint64_t blocks =
      options.kv_blocks > 0 ? options.kv_blocks : options.kv_cache_bytes / geometry.block_bytes();
  if (blocks == 0 || blocks > INT32_MAX) {
    return invalid("--kv-cache-memory is " + std::to_string(options.kv_cache_bytes) +
                   "; one block of " + std::to_string(geometry.block_tokens) +
                   " tokens of this model takes " + std::to_string(geometry.block_bytes()) +
                   " bytes: expected room for 1 to 2^31");
  }
  StepLimits limits;
  limits.tokens_max = options.step_tokens_max;
  limits.context_max = options.context_max > 0 ? options.context_max : config.context;
  limits.vocabulary = config.vocab;
  limits.block_count = static_cast<uint32_t>(blocks);
  Result<KvStore> store = KvStore::allocate(geometry, limits.block_count);
  if (!store) return store.error();
  std::unique_ptr<CpuEngine> engine(new CpuEngine(std::move(weights), std::move(compute), options,
                                                  limits, std::move(*store), std::move(post)));
  if (Result<void> allocated = engine->allocate(options); !allocated) return allocated.error();
  engine->store_.fault_in(*engine->compute_);
  return engine;
}

CpuEngine::CpuEngine(std::shared_ptr<const LlamaWeights> weights, std::shared_ptr<Compute> compute,
                     const CpuEngineOptions& options, const StepLimits& limits, KvStore store,
                     Post post)
    : weights_(std::move(weights)),
      compute_(std::move(compute)),
      mode_(options.activations),
      step_us_min_(options.step_us_min),
      ops_(options.ops != nullptr ? *options.ops : ops()),
      limits_(limits),
      on_logits_(options.on_logits),
      post_(std::move(post)),
      store_(std::move(store)),
      placement_(single_rank_placement(store_.geometry())),
      rows_(limits, store_.geometry()) {
  samplers_.reserve(static_cast<std::size_t>(compute_->threads()));
  for (int i = 0; i < compute_->threads(); ++i) {
    samplers_.emplace_back(ops_, limits.vocabulary, limits.context_max);
  }
  failed_.reserve(limits.tokens_max);
}

Result<void> CpuEngine::allocate(const CpuEngineOptions& options) {
  ForwardOptions forward;
  forward.ops = &ops_;
  forward.mode = options.activations;
  forward.threads = compute_->threads();
  forward.limits = limits_;
  Result<std::unique_ptr<LlamaForward>> made = LlamaForward::create(weights_, store_, forward);
  if (!made) return made.error();
  forward_ = std::move(*made);
  Result<std::unique_ptr<OutputHead>> head = OutputHead::create(weights_, forward);
  if (!head) return head.error();
  head_ = std::move(*head);
  return {};
}

CpuEngine::~CpuEngine() {
  compute_->run([](Team&) {});  // everything of ours that was posted before has run
}

void CpuEngine::submit(Batch batch, ActorId reply_to) {
  CHECK_MSG(!busy(), "a batch is under way already");
  batch_ = std::move(batch);
  reply_to_ = reply_to;
  busy_.store(true, std::memory_order_release);
  compute_->post([this](Team& team) {
    Mail mail;
    mail.envelope.kind = StepDone::kind;
    mail.envelope.from = reply_to_;
    mail.envelope.to = reply_to_;
    const auto end_min = std::chrono::steady_clock::now() + std::chrono::microseconds(step_us_min_);
    compute_step(team, batch_);
    if (step_us_min_ > 0) std::this_thread::sleep_until(end_min);
    mail.body = encode_body(done_);
    busy_.store(false, std::memory_order_release);  // first: who reads the mail may submit at once
    post_(std::move(mail));
  });
}

// Leaves the results in done_, whose memory is used again and again.
void CpuEngine::compute_step(Team& team, const Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  rows_.fill(batch);
  current_ = &batch;
  done_.step = batch.step;
  done_.rows.resize(batch.rows.size());
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    Sampler::begin_result(batch.rows[i], limits_.vocabulary, done_.rows[i]);
  }
  failed_.assign(rows_.wanted().size(), 0);
  forward_->begin_step();
  const OutputHead::Consumer consumer =
      [this](int thread, std::size_t index, std::span<const float> logits,
             const VocabSummary& summary) { consume(thread, index, logits, summary); };
  team.run([&](int thread, int n) {
    CHECK(fp_mode_is_set());
    const TeamMember me{team, thread, n};
    copy_blocks(batch, me);
    forward_->run(rows_, me);
    head_->run(forward_->residual(), rows_, me, consumer);
  });
  for (std::size_t i = 0; i < failed_.size(); ++i) {
    if (failed_[i] != 0) done_.rows[rows_.wanted()[i].row].numerical_error = true;
  }
  current_ = nullptr;
  done_.compute_us = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::steady_clock::now() - start)
                         .count();
}

// Each thread copies its share of every block.
void CpuEngine::copy_blocks(const Batch& batch, const TeamMember& me) {
  if (batch.copies.empty()) return;
  for (const BlockCopy& copy : batch.copies) {
    const std::span<const std::byte> source = store_.block(copy.from);
    const Share mine = me.share_of(source.size());
    std::memcpy(store_.block(copy.to).data() + mine.begin, source.data() + mine.begin,
                mine.end - mine.begin);
  }
  me.meet();
}

void CpuEngine::consume(int thread, std::size_t index, std::span<const float> logits,
                        const VocabSummary& summary) {
  const WantedLogits& wanted = rows_.wanted()[index];
  const BatchRow& row = current_->rows[wanted.row];
  RowResult& result = done_.rows[wanted.row];
  Sampler& sampler = samplers_[static_cast<std::size_t>(thread)];
  bool good = false;
  if (wanted.prompt_index == WantedLogits::kSample) {
    if (on_logits_) on_logits_(row.key, logits);
    good = sampler.choose(row, logits, summary, result);
  } else {
    good = sampler.score_prompt(row, static_cast<std::size_t>(wanted.prompt_index), logits, summary,
                                result);
  }
  failed_[index] = good ? 0 : 1;
}

void CpuEngine::warm_up_step(uint32_t rows, uint32_t tokens) {
  Batch batch;
  uint32_t used = 0;
  for (uint32_t i = 0; i < rows; ++i) {
    BatchRow& row = batch.rows.emplace_back();
    row.tokens.assign(tokens, 0);
    for (uint32_t b = geometry().blocks_for(tokens); b > 0; --b) row.blocks.push_back({used++});
  }
  compute_->run([&](Team& team) { compute_step(team, batch); });
  for (uint32_t b = 0; b < used; ++b) {  // as if nothing had been there
    const std::span<std::byte> block = store_.block({b});
    std::memset(block.data(), 0, block.size());
  }
}

void CpuEngine::warm_up() {
  CHECK(!busy());
  constexpr uint32_t kPromptTokens = 256;
  constexpr uint32_t kDecodeRows = 32;
  const uint64_t room = uint64_t{block_count()} * geometry().block_tokens;
  const auto tokens = static_cast<uint32_t>(
      std::min<uint64_t>({kPromptTokens, limits_.tokens_max, limits_.context_max, room}));
  warm_up_step(1, tokens);
  warm_up_step(1, 1);
  warm_up_step(std::min({kDecodeRows, limits_.tokens_max, block_count()}), 1);
}

}  // namespace baton
