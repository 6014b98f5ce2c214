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

// Limits of an engine, from its options: how many blocks its pools have above all. They are of one
// number on all ranks of an instance, so the rank with the largest blocks decides.
Result<StepLimits> limits_of(const CpuEngineOptions& options, const ModelConfig& config,
                             const Placement& placement) {
  const uint64_t block_bytes = placement.block_bytes_max();
  const uint64_t blocks =
      options.kv_blocks > 0 ? options.kv_blocks : options.kv_cache_bytes / block_bytes;
  if (blocks == 0 || blocks > INT32_MAX) {
    return invalid("--kv-cache-memory is " + std::to_string(options.kv_cache_bytes) +
                   "; one block of " + std::to_string(options.block_tokens) +
                   " tokens of this model takes " + std::to_string(block_bytes) +
                   " bytes: expected room for 1 to 2^31");
  }
  StepLimits limits;
  limits.tokens_max = options.step_tokens_max;
  limits.context_max = options.context_max > 0 ? options.context_max : config.context;
  limits.vocabulary = config.vocab;
  limits.block_count = static_cast<uint32_t>(blocks);
  return limits;
}

// Where things are in the window of an instance: commands, buffers, then the pool of each rank on
// pages of its own.
struct Window {
  static constexpr std::size_t kAlign = std::size_t{2} << 20;
  std::size_t buffers = GroupChannel::kAreaBytes;
  std::vector<std::size_t> pools;
  std::size_t bytes = 0;

  Window(const Placement& placement, const StepLimits& limits, std::size_t buffer_bytes) {
    bytes = aligned(buffers + buffer_bytes);
    for (uint32_t rank = 0; rank < placement.ranks.size(); ++rank) {
      pools.push_back(bytes);
      bytes = aligned(bytes + placement.geometry(rank).block_bytes() * limits.block_count);
    }
  }
  static std::size_t aligned(std::size_t at) { return (at + kAlign - 1) / kAlign * kAlign; }
};

}  // namespace

Result<std::unique_ptr<CpuEngine>> CpuEngine::create(std::shared_ptr<const LlamaWeights> weights,
                                                     std::shared_ptr<Compute> compute,
                                                     const CpuEngineOptions& options, Post post) {
  const ModelConfig& config = weights->config();
  const PartOf& of = weights->part().of;
  if (Result<void> checked = check_options(options, config); !checked) return checked.error();
  Placement placement = placement_of(config, of, options.kv_dtype, options.block_tokens);
  const Result<StepLimits> limits = limits_of(options, config, placement);
  if (!limits) return limits.error();
  CHECK((options.group == nullptr) == (of.ranks() == 1));
  CHECK(!options.group ||
        (options.group->size() == of.ranks() && options.group->index() == of.rank));
  std::unique_ptr<CpuEngine> engine(new CpuEngine(std::move(weights), std::move(compute), options,
                                                  *limits, std::move(placement), std::move(post)));
  if (Result<void> allocated = engine->allocate(options); !allocated) return allocated.error();
  KvStore& own = engine->stores_[of.rank];
  own.fault_in(*engine->compute_);
  return engine;
}

Result<uint64_t> CpuEngine::window_bytes(const ModelConfig& config, const CpuEngineOptions& options,
                                         const PartOf& of) {
  if (Result<void> checked = check_options(options, config); !checked) return checked.error();
  if (Result<ModelPart> part = part_of_model(config, of); !part) return part.error();
  const Placement placement = placement_of(config, of, options.kv_dtype, options.block_tokens);
  const Result<StepLimits> limits = limits_of(options, config, placement);
  if (!limits) return limits.error();
  StepBuffers buffers;
  ScratchPlan plan;
  buffers.plan(plan, config, limits->tokens_max);
  return uint64_t{Window(placement, *limits, plan.bytes()).bytes};
}

CpuEngine::CpuEngine(std::shared_ptr<const LlamaWeights> weights, std::shared_ptr<Compute> compute,
                     const CpuEngineOptions& options, const StepLimits& limits, Placement placement,
                     Post post)
    : of_(weights->part().of),
      model_hash_(weights->model_hash()),
      compute_(std::move(compute)),
      mode_(options.activations),
      step_us_min_(options.step_us_min),
      ops_(options.ops != nullptr ? *options.ops : ops()),
      limits_(limits),
      on_logits_(options.on_logits),
      post_(std::move(post)),
      placement_(std::move(placement)),
      group_(options.group),
      step_group_(options.group.get()),
      rows_(limits, placement_.geometry(of_.rank)),
      sets_(options.weight_sets_max),
      weights_(weights),
      loader_(options.loader ? options.loader
                             : std::make_shared<WeightsLoader>(weights->identity(), of_)) {
  sets_.start(kFirstWeights, model_hash_, std::move(weights));
  samplers_.reserve(static_cast<std::size_t>(compute_->threads()));
  for (int i = 0; i < compute_->threads(); ++i) {
    samplers_.emplace_back(ops_, limits.vocabulary, limits.context_max);
  }
  failed_.reserve(limits.tokens_max);
}

// Buffers and pools: in the window of the group, or in memory of its own.
Result<void> CpuEngine::allocate_shared() {
  ScratchPlan plan;
  buffers_.plan(plan, weights_->config(), limits_.tokens_max);
  if (group_ == nullptr) {
    Result<MappedMemory> memory =
        plan.allocate({"the buffers of a step", "lower --max-num-batched-tokens"});
    if (!memory) return memory.error();
    memory_ = std::move(*memory);
    Result<KvStore> store = KvStore::allocate(placement_.geometry(0), limits_.block_count);
    if (!store) return store.error();
    stores_.push_back(std::move(*store));
  } else {
    const Window window(placement_, limits_, plan.bytes());
    CHECK(group_->window().size() >= window.bytes);
    std::byte* const base = group_->window().data();
    channel_ = std::make_unique<GroupChannel>(*group_, base);
    plan.place(base + window.buffers);
    for (uint32_t rank = 0; rank < placement_.ranks.size(); ++rank) {
      stores_.push_back(
          KvStore::over(placement_.geometry(rank), limits_.block_count, base + window.pools[rank]));
    }
  }
  buffers_.placed();
  return {};
}

Result<void> CpuEngine::allocate(const CpuEngineOptions& options) {
  if (Result<void> shared = allocate_shared(); !shared) return shared;
  ForwardOptions forward;
  forward.ops = &ops_;
  forward.mode = options.activations;
  forward.threads = compute_->threads();
  forward.limits = limits_;
  Result<std::unique_ptr<LlamaForward>> made =
      LlamaForward::create(*weights_, store(), buffers_, forward);
  if (!made) return made.error();
  forward_ = std::move(*made);
  Result<std::unique_ptr<OutputHead>> head = OutputHead::create(*weights_, buffers_, forward);
  if (!head) return head.error();
  head_ = std::move(*head);
  return {};
}

// Nobody may be left who would call back: neither the loader, nor the compute thread.
CpuEngine::~CpuEngine() {
  leaving_ = true;
  interests_.clear();
  loader_->quiesce();
  compute_->run([this](Team&) {  // everything of ours that was posted before has run
    if (!channel_ || !leads() || step_group_.broken()) return;
    group_->close();
    (void)channel_->send(GroupOrder::leave, {}).ok();  // broken: they left already
  });
}

void CpuEngine::submit(Batch batch, ActorId reply_to) {
  CHECK_MSG(!busy(), "a batch is under way already");
  CHECK(leads());
  batch_ = std::move(batch);
  reply_to_ = reply_to;
  weights_ = set_of(batch_);
  busy_.store(true, std::memory_order_release);
  compute_->post([this](Team& team) {
    Mail mail;
    mail.envelope.kind = StepDone::kind;
    mail.envelope.from = reply_to_;
    mail.envelope.to = reply_to_;
    const auto end_min = std::chrono::steady_clock::now() + std::chrono::microseconds(step_us_min_);
    if (!compute_step(team, batch_)) return;  // and busy for ever: this instance is over
    if (step_us_min_ > 0) std::this_thread::sleep_until(end_min);
    mail.body = encode_body(done_);
    weights_.reset();                               // dropped meanwhile, perhaps
    busy_.store(false, std::memory_order_release);  // first: who reads the mail may submit at once
    post_(std::move(mail));
  });
}

// Leaves the results in done_, whose memory is used again and again.
bool CpuEngine::compute_step(Team& team, const Batch& batch) {
  const auto start = std::chrono::steady_clock::now();
  if (channel_ && !channel_->send(GroupOrder::step, encode_fields(batch)).ok()) return false;
  rows_.fill(batch);
  current_ = &batch;
  done_.step = batch.step;
  done_.rows.resize(batch.rows.size());
  for (std::size_t i = 0; i < batch.rows.size(); ++i) {
    Sampler::begin_result(batch.rows[i], limits_.vocabulary, done_.rows[i]);
  }
  failed_.assign(rows_.wanted().size(), 0);
  const bool good = compute_part(
      team, batch,
      [this](int thread, std::size_t index, std::span<const float> logits,
             const VocabSummary& summary) { consume(thread, index, logits, summary); });
  for (std::size_t i = 0; i < failed_.size(); ++i) {
    if (failed_[i] != 0) done_.rows[rows_.wanted()[i].row].numerical_error = true;
  }
  current_ = nullptr;
  done_.compute_us = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::steady_clock::now() - start)
                         .count();
  return good;
}

// The part of this rank in the step that rows_ holds.
bool CpuEngine::compute_part(Team& team, const Batch& batch, const OutputHead::Consumer& consumer) {
  forward_->begin_step(*weights_);
  head_->begin_step(*weights_);
  team.run([&](int thread, int n) {
    CHECK(fp_mode_is_set());
    const TeamMember me{team, thread, n, step_group_};
    copy_blocks(batch, me);
    forward_->run(rows_, me);
    if (!step_group_.broken()) head_->run(rows_, me, consumer);
  });
  return !step_group_.broken();
}

Result<void> CpuEngine::follow() {
  CHECK(channel_ && !leads());
  Result<void> outcome;
  compute_->run([&](Team& team) {
    for (;;) {
      const Result<GroupCommand> command = channel_->receive();
      const Result<bool> goes_on = command ? obey(team, *command) : Result<bool>(command.error());
      if (!goes_on) outcome = goes_on.error();
      if (!goes_on || !*goes_on) return;
    }
  });
  return outcome;
}

// Does what the first rank says. False: it was the last command.
Result<bool> CpuEngine::obey(Team& team, const GroupCommand& command) {
  switch (command.order) {
    case GroupOrder::leave: return false;
    case GroupOrder::step: {
      const Result<Batch> batch = decode_fields<Batch>(command.body);
      if (!batch) return batch.error();
      rows_.fill(*batch);
      weights_ = set_of(*batch);
      // A broken group shows at the next command, with its reason.
      compute_part(team, *batch, {});
      weights_.reset();
      return true;
    }
    case GroupOrder::prepare_weights:
    case GroupOrder::commit_weights:
    case GroupOrder::drop_weights:
    case GroupOrder::report_weights: return obey_weights(command);
  }
  CHECK_MSG(false, "an order that receive() let through");
}

// Each thread copies its share of every block.
void CpuEngine::copy_blocks(const Batch& batch, const TeamMember& me) {
  if (batch.copies.empty()) return;
  for (const BlockCopy& copy : batch.copies) {
    const std::span<const std::byte> source = store().block(copy.from);
    const Share mine = me.share_of(source.size());
    std::memcpy(store().block(copy.to).data() + mine.begin, source.data() + mine.begin,
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
  weights_ = set_of(batch);
  compute_->run([&](Team& team) { compute_step(team, batch); });
  weights_.reset();
  for (const KvStore& store : stores_) {  // as if nothing had been there
    for (uint32_t b = 0; b < used; ++b) {
      const std::span<std::byte> block = store.block({b});
      std::memset(block.data(), 0, block.size());
    }
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
