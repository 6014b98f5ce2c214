#include "runtime/engine/fake_engine.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "kernels/formats.h"
#include "runtime/actor/wire.h"
#include "runtime/base/check.h"
#include "runtime/base/hash.h"
#include "runtime/layout/kv_layout_of.h"

namespace baton {
namespace {

std::vector<TokenLogprob> best(uint64_t digest, const FakeSample& chosen, int32_t count) {
  std::vector<TokenLogprob> top;
  for (int32_t i = 0; i < count; ++i) {
    const TokenId id = i == 0 ? chosen.token : i;
    top.push_back({id, fake_logprob(digest, id)});
  }
  return top;
}

// Where the elements of one (position, layer, k or v, head) are.
class LaneElements {
 public:
  LaneElements(const KvLayout& layout, uint32_t position, uint32_t layer, bool value, uint32_t head)
      : block(position / layout.block_tokens),
        layout_(layout),
        part_(value ? layout.v_offset(layer, head) : layout.k_offset(layer, head)),
        token_(position % layout.block_tokens),
        value_(value) {}
  size_t offset(uint32_t dim) const {
    const size_t index = value_ ? layout_.v_index(token_, dim) : layout_.k_index(token_, dim);
    return part_ + index * kv_element_bytes(layout_.element);
  }

  const uint32_t block;  // position in the row's table

 private:
  const KvLayout& layout_;
  const size_t part_;
  const size_t token_;
  const bool value_;
};

void store_value(KvElement element, std::byte* at, uint64_t byte) {
  const auto number = static_cast<float>(byte);
  if (element == KvElement::f32) {
    std::memcpy(at, &number, 4);
    return;
  }
  const uint16_t half = element == KvElement::bf16 ? f32_to_bf16(number) : f32_to_f16(number);
  std::memcpy(at, &half, 2);
}

// The byte that was stored; anything else that is found there keeps all its bits.
uint64_t load_value(KvElement element, const std::byte* at) {
  float number = 0;
  uint16_t half = 0;
  switch (element) {
    case KvElement::f32: std::memcpy(&number, at, 4); break;
    case KvElement::bf16:
      std::memcpy(&half, at, 2);
      number = bf16_to_f32(half);
      break;
    case KvElement::f16:
      std::memcpy(&half, at, 2);
      number = f16_to_f32(half);
      break;
  }
  const bool one_of_ours = number >= 0 && number < 256 && number == static_cast<int>(number);
  return one_of_ours ? static_cast<uint64_t>(number) : mix64(std::bit_cast<uint32_t>(number));
}

}  // namespace

Placement whole_placement(const FakeModel& model) {
  return single_rank_placement({model.shape.layers, model.shape.kv_heads, model.shape.head_dim, 16,
                                KvDtype::f32, InnerLayout::cpu_pairs});
}

FakeEngine::FakeEngine(FakeEngineOptions options)
    : options_(std::move(options)),
      placement_(options_.placement.ranks.empty() ? whole_placement(options_.model)
                                                  : options_.placement),
      geometry_(placement_.geometry(0)),
      sets_(options_.weight_sets_max) {
  CHECK_MSG(placement_.shape == options_.model.shape, "the placement is of another model");
  CHECK(check_placement(placement_).ok());
  CHECK_MSG(placement_.shape.head_dim <= 8, "a lane of the fake model has 8 dims at most");
  CHECK(options_.later && options_.post && options_.duration);
  for (uint32_t i = 0; i < placement_.ranks.size(); ++i) {
    const KvLayout layout = kv_layout_of(placement_.geometry(i));
    // Not zeros: what was never written must not look like something.
    ranks_.push_back(
        {placement_.ranks[i], layout,
         std::vector<std::byte>(options_.block_count * layout.block_bytes(), std::byte{0xA5})});
  }
  sets_.start(kFirstWeights, options_.model_hash, std::make_shared<Weights>(kFakeFirstWeights));
}

std::span<std::byte> FakeEngine::block_bytes(uint32_t rank, BlockId block) {
  CHECK(rank < ranks_.size());
  CHECK(block.value < options_.block_count);
  const uint64_t bytes = ranks_[rank].layout.block_bytes();
  return std::span(ranks_[rank].store).subspan(block.value * bytes, bytes);
}

void FakeEngine::check(const Batch& batch) const {
  uint64_t tokens = 0;
  for (const BatchRow& row : batch.rows) {
    const uint64_t end = row.position + row.tokens.size();
    CHECK_MSG(!row.tokens.empty(), "a row without tokens");
    CHECK_MSG(end <= options_.context_max, "a row beyond the context");
    CHECK_MSG(row.blocks.size() >= geometry().blocks_for(end), "a row lacks blocks");
    tokens += row.tokens.size();
  }
  CHECK_MSG(!batch.rows.empty(), "a step without rows");
  CHECK_MSG(tokens <= options_.step_tokens_max, "a step has more tokens than the engine takes");
}

void FakeEngine::submit(Batch batch, ActorId reply_to) {
  CHECK_MSG(!busy_, "one batch at a time");
  if (options_.change) options_.change(batch);
  check(batch);
  busy_ = true;
  const Micros took = options_.duration(batch);
  const uint64_t weights = *sets_.of_batch(batch.weights_version);
  options_.later(took, [this, batch = std::move(batch), weights, reply_to, took] {
    finish(batch, weights, reply_to, took);
  });
}

void FakeEngine::finish(const Batch& batch, uint64_t weights, ActorId reply_to, Micros took) {
  if (options_.watch) options_.watch(batch);
  StepDone done;
  done.step = batch.step;
  done.compute_us = took;
  for (const BlockCopy& copy : batch.copies) {
    for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::span<std::byte> source = block_bytes(rank, copy.from);
      std::memcpy(block_bytes(rank, copy.to).data(), source.data(), source.size());
    }
  }
  for (const BatchRow& row : batch.rows) done.rows.push_back(compute(row, weights));
  busy_ = false;
  tell(reply_to, StepDone::kind, encode_body(done));
}

void FakeEngine::tell(ActorId reply_to, MsgKind kind, std::string body) {
  Mail mail;
  mail.envelope.kind = kind;
  mail.envelope.from = reply_to;
  mail.envelope.to = reply_to;
  mail.body = std::move(body);
  options_.post(std::move(mail));
}

void FakeEngine::prepare_weights(const WeightsOrder& order, ActorId reply_to) {
  if (const Result<void> begun = sets_.begin(order, reply_to); !begun.ok()) {
    WeightsPrepared refused;
    refused.version = order.version;
    refused.ticket = order.ticket;
    refused.code = begun.error().code;
    refused.text = begun.error().text;
    return tell(reply_to, WeightsPrepared::kind, encode_body(refused));
  }
  const Micros took = options_.prepare_duration ? options_.prepare_duration() : 0;
  options_.later(took, [this, order, reply_to, took] { finish_preparing(order, reply_to, took); });
}

// The file is opened when the time is up, so that it may change meanwhile.
void FakeEngine::finish_preparing(const WeightsOrder& order, ActorId reply_to, Micros took) {
  WeightsPrepared prepared;
  prepared.version = order.version;
  prepared.ticket = order.ticket;
  prepared.took_us = took;
  const Result<uint64_t> opened = options_.open_weights ? options_.open_weights(order.source)
                                                        : Result(fake_weights(order.source.path));
  if (opened.ok()) {
    if (!sets_.finish(order, reply_to, *opened, std::make_shared<Weights>(*opened))) return;
    prepared.ok = true;
    prepared.digest = *opened;
  } else {
    if (!sets_.fail(order, reply_to)) return;
    prepared.code = opened.error().code;
    prepared.text = opened.error().text;
  }
  tell(reply_to, WeightsPrepared::kind, encode_body(prepared));
}

RowResult FakeEngine::compute(const BatchRow& row, uint64_t weights) {
  RowResult result;
  result.key = row.key;
  const SamplingParams& sampling = row.sampling;
  uint64_t digest = fake_start(weights);
  uint32_t position = 0;
  for (; position < row.position; ++position) digest = absorb(row, position, digest);
  for (TokenId token : row.tokens) {
    if (position > row.position && sampling.prompt_logprobs >= 0) {
      const FakeSample given{token, fake_logprob(digest, token)};
      result.prompt_logprobs.push_back(given.logprob);
      if (sampling.prompt_logprobs > 0) {
        result.prompt_top.push_back(best(digest, given, sampling.prompt_logprobs));
      }
    }
    write(row, position, token, weights);
    digest = absorb(row, position, digest);
    ++position;
  }
  for (const uint32_t choice : row.samples) {
    const FakeSample next = fake_sample(options_.model, digest, position, sampling.seed, choice);
    RowSample& sample = result.samples.emplace_back();
    sample.choice = choice;
    sample.token = next.token;
    if (sampling.top_logprobs >= 0) sample.logprob = next.logprob;
    if (sampling.top_logprobs > 0) sample.top = best(digest, next, sampling.top_logprobs);
  }
  return result;
}

void FakeEngine::write(const BatchRow& row, uint32_t position, TokenId token, uint64_t weights) {
  for (Rank& rank : ranks_) {
    for (uint32_t layer = rank.owned.layers.begin; layer < rank.owned.layers.end; ++layer) {
      for (bool value : {false, true}) {
        for (uint32_t head = rank.owned.heads.begin; head < rank.owned.heads.end; ++head) {
          write_lane(rank, row, position, layer, value, head,
                     fake_lane(placement_.shape, token, position, layer, value, head, weights));
        }
      }
    }
  }
}

// Every rank that owns a lane must have the right one: a copy that differs counts too.
uint64_t FakeEngine::absorb(const BatchRow& row, uint32_t position, uint64_t digest) {
  for (uint32_t layer = 0; layer < placement_.shape.layers; ++layer) {
    for (bool value : {false, true}) {
      for (uint32_t head = 0; head < placement_.shape.kv_heads; ++head) {
        std::optional<uint64_t> first;
        for (const Rank& rank : ranks_) {
          if (!rank.owned.layers.contains(layer) || !rank.owned.heads.contains(head)) continue;
          const uint64_t lane = read_lane(rank, row, position, layer, value, head);
          if (!first || lane != *first) digest = fake_absorb(digest, lane);
          if (!first) first = lane;
        }
      }
    }
  }
  return digest;
}

void FakeEngine::write_lane(Rank& rank, const BatchRow& row, uint32_t position, uint32_t layer,
                            bool value, uint32_t head, uint64_t lane) {
  const LaneElements elements(rank.layout, position, layer - rank.owned.layers.begin, value,
                              head - rank.owned.heads.begin);
  std::byte* block =
      rank.store.data() + row.blocks[elements.block].value * rank.layout.block_bytes();
  for (uint32_t dim = 0; dim < rank.layout.head_dim; ++dim) {
    store_value(rank.layout.element, block + elements.offset(dim), lane >> 8 * dim & 0xFF);
  }
}

uint64_t FakeEngine::read_lane(const Rank& rank, const BatchRow& row, uint32_t position,
                               uint32_t layer, bool value, uint32_t head) const {
  const LaneElements elements(rank.layout, position, layer - rank.owned.layers.begin, value,
                              head - rank.owned.heads.begin);
  const std::byte* block =
      rank.store.data() + row.blocks[elements.block].value * rank.layout.block_bytes();
  uint64_t lane = 0;
  for (uint32_t dim = 0; dim < rank.layout.head_dim; ++dim) {
    lane ^= load_value(rank.layout.element, block + elements.offset(dim)) << 8 * dim;
  }
  return lane;
}

}  // namespace baton
