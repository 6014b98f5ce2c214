#pragma once

#include <cstring>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/actor/engine.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "runtime/engine/weight_sets.h"
#include "tests/unit/actors/fake_context.h"

namespace baton::test {

// What a sequence of tokens is followed by: a pure function, so that wrong, missing or foreign KV
// blocks show as a wrong token.
inline TokenId next_token(const std::vector<TokenId>& tokens, uint64_t seed, uint32_t vocabulary) {
  uint64_t state = seed;
  for (const TokenId token : tokens) state = mix64(state ^ static_cast<uint64_t>(token));
  return static_cast<TokenId>(state % vocabulary);
}
inline float token_logprob(TokenId earlier, TokenId token) {
  return -static_cast<float>(earlier * 1000 + token);
}

// An Engine whose steps end when the test says so. Its KV store holds the token ids themselves, and
// every step reads the earlier ones from there. Used by the test's thread alone.
class ScriptedEngine final : public Engine {
 public:
  struct Shape {
    uint32_t blocks = 16;
    uint32_t context_max = 256;
    uint32_t step_tokens_max = 128;
    uint32_t vocabulary = 1000;
    uint32_t block_tokens = 16;
  };
  explicit ScriptedEngine(Shape shape) : shape_(shape) {
    geometry_.layers = 1;
    geometry_.kv_heads = 1;
    geometry_.head_dim = 2;
    geometry_.block_tokens = shape.block_tokens;
    bytes_.resize(shape.blocks * geometry_.block_bytes());
    placement_ = single_rank_placement(geometry_);
    sets_.start(kFirstWeights, 22, std::make_shared<uint64_t>(0));
  }

  const Placement& placement() const override { return placement_; }
  const KvGeometry& geometry() const override { return geometry_; }
  uint32_t block_count() const override { return shape_.blocks; }
  using Engine::block_bytes;
  std::span<std::byte> block_bytes(uint32_t rank, BlockId block) override {
    REQUIRE(rank == 0);
    const size_t size = geometry_.block_bytes();
    return std::span(bytes_).subspan(block.value * size, size);
  }
  uint32_t step_tokens_max() const override { return shape_.step_tokens_max; }
  uint32_t context_max() const override { return shape_.context_max; }
  uint32_t vocabulary() const override { return shape_.vocabulary; }
  bool busy() const override { return batch.has_value(); }
  void submit(Batch submitted, ActorId reply_to) override {
    REQUIRE(!busy());
    owner = reply_to;
    uint32_t tokens = 0;
    for (const BatchRow& row : submitted.rows) tokens += static_cast<uint32_t>(row.tokens.size());
    REQUIRE(tokens <= shape_.step_tokens_max);
    REQUIRE(sets_.of_batch(submitted.weights_version) != nullptr);
    batch = std::move(submitted);
    ++batches;
  }
  void prepare_weights(const WeightsOrder& order, ActorId reply_to) override {
    const Result<void> begun = sets_.begin(order, reply_to);
    WeightsPrepared prepared;
    prepared.version = order.version;
    prepared.ticket = order.ticket;
    if (!begun.ok()) {
      prepared.code = begun.error().code;
      prepared.text = begun.error().text;
    }
    preparing.push_back({order, prepared});
    owner = reply_to;
  }
  void commit_weights(uint64_t version) override { sets_.commit(version); }
  void drop_weights(uint64_t version) override { sets_.drop(version); }
  std::vector<WeightsInfo> weights() const override { return sets_.list(); }
  uint64_t numerics_id() const override { return 11; }
  uint64_t model_hash() const override { return 22; }

  // Ends the step under way: computes it and tells the actor.
  void finish_step(FakeContext& context, Actor& actor) {
    REQUIRE(busy());
    StepDone done;
    const Batch batch_done = *std::exchange(batch, std::nullopt);
    done.step = batch_done.step;
    for (const BlockCopy& copy : batch_done.copies) {
      const std::span<std::byte> source = block_bytes(copy.from);
      std::memcpy(block_bytes(copy.to).data(), source.data(), source.size());
    }
    for (const BatchRow& row : batch_done.rows) {
      RowResult result = compute(row);
      if (adjust) adjust(row, result);
      done.rows.push_back(std::move(result));
    }
    context.deliver(actor, context.self(), done);
  }

  // Ends the oldest preparation: well, unless the engine refused it or `fault` is a sentence.
  void finish_preparing(FakeContext& context, Actor& actor, const std::string& fault = "") {
    REQUIRE(!preparing.empty());
    auto [order, prepared] = preparing.front();
    preparing.erase(preparing.begin());
    if (prepared.text.empty() && fault.empty()) {
      prepared.digest = hash64(order.source.path.data(), order.source.path.size());
      prepared.ok = true;
      if (!sets_.finish(order, owner, prepared.digest, std::make_shared<uint64_t>(prepared.digest)))
        return;
    } else if (prepared.text.empty()) {
      prepared.code = ErrorCode::bad_model;
      prepared.text = fault;
      if (!sets_.fail(order, owner)) return;
    }
    context.deliver(actor, context.self(), prepared);
  }

  std::optional<Batch> batch;  // the step under way
  std::vector<std::pair<WeightsOrder, WeightsPrepared>> preparing;
  ActorId owner;
  uint64_t batches = 0;
  std::function<void(const BatchRow&, RowResult&)> adjust;  // changes results, if set

 private:
  RowResult compute(const BatchRow& row) {
    const auto end = static_cast<uint32_t>(row.position + row.tokens.size());
    REQUIRE(row.blocks.size() >= geometry_.blocks_for(end));
    REQUIRE(end <= shape_.context_max);
    for (size_t i = 0; i < row.tokens.size(); ++i) {
      std::memcpy(cell(row, row.position + static_cast<uint32_t>(i)), &row.tokens[i], 4);
    }
    std::vector<TokenId> all(end);
    for (uint32_t i = 0; i < end; ++i) std::memcpy(&all[i], cell(row, i), 4);
    RowResult result;
    result.key = row.key;
    for (const uint32_t choice : row.samples) {
      RowSample& sample = result.samples.emplace_back();
      sample.choice = choice;
      sample.token = next_token(all, row.sampling.seed + choice, shape_.vocabulary);
      sample.logprob = token_logprob(all.back(), sample.token);
    }
    if (row.sampling.prompt_logprobs >= 0) {
      for (size_t i = 1; i < row.tokens.size(); ++i) {
        result.prompt_logprobs.push_back(token_logprob(row.tokens[i - 1], row.tokens[i]));
        result.prompt_top.push_back({{row.tokens[i], result.prompt_logprobs.back()}});
      }
    }
    return result;
  }
  std::byte* cell(const BatchRow& row, uint32_t position) {
    const BlockId block = row.blocks[position / geometry_.block_tokens];
    return block_bytes(block).data() + size_t{position % geometry_.block_tokens} * 4;
  }

  Shape shape_;
  KvGeometry geometry_;
  Placement placement_;
  std::vector<std::byte> bytes_;
  WeightSets<uint64_t> sets_{2};
};

}  // namespace baton::test
