#include "runtime/engine/step_rows.h"

#include <algorithm>

#include "runtime/base/check.h"

namespace baton {

StepRows::StepRows(const StepLimits& limits, const KvGeometry& geometry)
    : limits_(limits), geometry_(geometry) {
  const std::size_t tokens = limits.tokens_max;
  tokens_.reserve(tokens);
  kv_.reserve(tokens);
  blocks_.reserve(tokens * geometry.blocks_for(limits.context_max));  // untouched until needed
  wanted_.reserve(tokens);
  runs_.reserve(tokens);
  fresh_blocks_.reserve(tokens);
}

void StepRows::fill(const Batch& batch) {
  tokens_.clear();
  kv_.clear();
  blocks_.clear();
  wanted_.clear();
  fresh_blocks_.clear();
  independent_ = true;
  std::size_t tokens = 0;
  for (const BatchRow& row : batch.rows) tokens += row.tokens.size();
  CHECK(tokens > 0 && tokens <= limits_.tokens_max);
  for (uint32_t i = 0; i < batch.rows.size(); ++i) add_row(batch.rows[i], i);
  cut_runs();
}

void StepRows::add_row(const BatchRow& row, uint32_t index) {
  const std::size_t end = row.position + row.tokens.size();
  CHECK(!row.tokens.empty() && end <= limits_.context_max);
  CHECK(row.blocks.size() >= geometry_.blocks_for(end));
  const std::size_t first = tokens_.size();
  const std::size_t used = geometry_.blocks_for(end);
  CHECK(blocks_.size() + used <= blocks_.capacity());  // kv_ points into it
  const int32_t* blocks = blocks_.data() + blocks_.size();
  for (std::size_t i = 0; i < used; ++i) {
    CHECK(row.blocks[i].value < limits_.block_count);
    blocks_.push_back(static_cast<int32_t>(row.blocks[i].value));
  }
  for (std::size_t i = 0; i < row.tokens.size(); ++i) {
    CHECK(row.tokens[i] >= 0 && static_cast<uint32_t>(row.tokens[i]) < limits_.vocabulary);
    tokens_.push_back(row.tokens[i]);
    kv_.push_back({blocks, static_cast<int32_t>(row.position + i)});
  }
  independent_ = independent_ && row.tokens.size() == 1;
  const std::size_t last = used - 1;
  if (last * geometry_.block_tokens >= row.position && end % geometry_.block_tokens != 0) {
    fresh_blocks_.push_back(row.blocks[last]);
  }
  add_wanted(row, index, first);
}

void StepRows::add_wanted(const BatchRow& row, uint32_t index, std::size_t first) {
  const auto token = static_cast<uint32_t>(first);
  const auto count = static_cast<uint32_t>(row.tokens.size());
  if (row.sampling.prompt_logprobs >= 0) {
    for (uint32_t i = 0; i + 1 < count; ++i) {
      wanted_.push_back({token + i, index, static_cast<int32_t>(i)});
    }
  }
  if (!row.samples.empty()) wanted_.push_back({token + count - 1, index, WantedLogits::kSample});
}

// Cut at multiples of the run length, so that tokens which share a tile of keys stay together;
// shorter runs when there are few tokens, so that every thread gets some.
void StepRows::cut_runs() {
  constexpr int32_t kLongRun = 64;
  constexpr int32_t kShortRun = 16;
  const int32_t length = tokens_.size() >= 256 ? kLongRun : kShortRun;
  runs_.clear();
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const bool goes_on =
        i > 0 && kv_[i].blocks == kv_[i - 1].blocks && kv_[i].position % length != 0;
    if (!goes_on) runs_.push_back({i, i});
    runs_.back().end = i + 1;
  }
}

}  // namespace baton
