#include "runtime/engine/fake_engine.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/actor/wire.h"
#include "runtime/base/check.h"

namespace baton {
namespace {

constexpr size_t kLaneBytes = 8;  // KV bytes of one position, layer, k or v, and head

std::vector<TokenLogprob> best(uint64_t digest, const FakeSample& chosen, int32_t count) {
  std::vector<TokenLogprob> top;
  for (int32_t i = 0; i < count; ++i) {
    const TokenId id = i == 0 ? chosen.token : i;
    top.push_back({id, fake_logprob(digest, id)});
  }
  return top;
}

}  // namespace

FakeEngine::FakeEngine(FakeEngineOptions options)
    : options_(std::move(options)), placement_(single_rank_placement(options_.model.geometry)) {
  const KvGeometry& g = options_.model.geometry;
  CHECK_MSG(g.head_dim * dtype_bytes(g.dtype) == kLaneBytes,
            "the fake model stores 8 bytes for each position, layer and head");
  CHECK(options_.later && options_.post && options_.duration);
  // Not zeros: what was never written must not look like something.
  store_.assign(options_.block_count * g.block_bytes(), std::byte{0xA5});
}

std::span<std::byte> FakeEngine::block_bytes(uint32_t rank, BlockId block) {
  CHECK(rank == 0);
  CHECK(block.value < options_.block_count);
  const uint64_t bytes = geometry().block_bytes();
  return {store_.data() + block.value * bytes, bytes};
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
  options_.later(
      took, [this, batch = std::move(batch), reply_to, took] { finish(batch, reply_to, took); });
}

void FakeEngine::finish(const Batch& batch, ActorId reply_to, Micros took) {
  if (options_.watch) options_.watch(batch);
  StepDone done;
  done.step = batch.step;
  done.compute_us = took;
  for (const BlockCopy& copy : batch.copies) {
    std::memcpy(block_bytes(copy.to).data(), block_bytes(copy.from).data(),
                geometry().block_bytes());
  }
  for (const BatchRow& row : batch.rows) done.rows.push_back(compute(row));
  busy_ = false;
  Mail mail;
  mail.envelope.kind = StepDone::kind;
  mail.envelope.from = reply_to;
  mail.envelope.to = reply_to;
  mail.body = encode_body(done);
  options_.post(std::move(mail));
}

RowResult FakeEngine::compute(const BatchRow& row) {
  RowResult result;
  result.key = row.key;
  const SamplingParams& sampling = row.sampling;
  uint64_t digest = kFakeStart;
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
    write(row, position, token);
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

std::byte* FakeEngine::at(const BatchRow& row, uint32_t position, uint32_t layer, bool value,
                          uint32_t head) {
  const KvGeometry& g = geometry();
  const uint32_t block_tokens = g.block_tokens;
  const uint64_t part = (uint64_t{layer} * 2 + (value ? 1 : 0)) * g.kv_heads + head;
  const uint64_t offset = (part * block_tokens + position % block_tokens) * kLaneBytes;
  return block_bytes(row.blocks[position / block_tokens]).data() + offset;
}

void FakeEngine::write(const BatchRow& row, uint32_t position, TokenId token) {
  for (uint32_t layer = 0; layer < geometry().layers; ++layer) {
    for (bool value : {false, true}) {
      for (uint32_t head = 0; head < geometry().kv_heads; ++head) {
        const uint64_t bytes = fake_kv(token, position, layer, value, head);
        std::memcpy(at(row, position, layer, value, head), &bytes, kLaneBytes);
      }
    }
  }
}

uint64_t FakeEngine::absorb(const BatchRow& row, uint32_t position, uint64_t digest) {
  for (uint32_t layer = 0; layer < geometry().layers; ++layer) {
    for (bool value : {false, true}) {
      for (uint32_t head = 0; head < geometry().kv_heads; ++head) {
        uint64_t bytes = 0;
        std::memcpy(&bytes, at(row, position, layer, value, head), kLaneBytes);
        digest = fake_absorb(digest, bytes);
      }
    }
  }
  return digest;
}

}  // namespace baton
