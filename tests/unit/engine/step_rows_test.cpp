#include "runtime/engine/step_rows.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

KvGeometry geometry() {
  KvGeometry g;
  g.layers = 1;
  g.kv_heads = 1;
  g.head_dim = 16;
  g.block_tokens = 16;
  return g;
}

StepRows step_rows() {
  return StepRows({.tokens_max = 512, .context_max = 1024, .vocabulary = 100, .block_count = 64},
                  geometry());
}

BatchRow row(uint32_t position, uint32_t tokens, uint32_t first_block = 0) {
  BatchRow out;
  out.tokens.assign(tokens, 7);
  out.position = position;
  for (uint32_t i = 0; i < geometry().blocks_for(position + tokens); ++i) {
    out.blocks.push_back({first_block + i});
  }
  return out;
}

std::vector<uint32_t> fresh(const BatchRow& row) {
  StepRows rows = step_rows();
  rows.fill({{1}, {row}});
  std::vector<uint32_t> out;
  for (const BlockId block : rows.fresh_blocks()) out.push_back(block.value);
  return out;
}

}  // namespace

TEST_CASE("a step is one list of tokens with their positions and blocks") {
  StepRows rows = step_rows();
  rows.fill({{1}, {row(0, 20, 3), row(40, 1, 9)}});
  REQUIRE(rows.size() == 21);
  CHECK_FALSE(rows.independent());
  for (int32_t i = 0; i < 20; ++i) {
    CHECK(rows.kv()[static_cast<std::size_t>(i)].position == i);
    CHECK(rows.kv()[static_cast<std::size_t>(i)].blocks == rows.kv()[0].blocks);
  }
  CHECK(rows.kv()[0].blocks[1] == 4);
  CHECK(rows.kv()[20].position == 40);
  CHECK(rows.kv()[20].blocks[2] == 11);
  rows.fill({{2}, {row(5, 1), row(40, 1, 9)}});  // the same object serves every step
  CHECK(rows.size() == 2);
  CHECK(rows.independent());
}

TEST_CASE("a block is fresh when the step writes its first position but not its last") {
  CHECK(fresh(row(0, 5)) == std::vector<uint32_t>{0});
  CHECK(fresh(row(0, 16)).empty());  // filled at once
  CHECK(fresh(row(0, 17)) == std::vector<uint32_t>{1});
  CHECK(fresh(row(5, 5)).empty());  // came with its earlier positions
  CHECK(fresh(row(5, 11)).empty());
  CHECK(fresh(row(5, 12)) == std::vector<uint32_t>{1});
  CHECK(fresh(row(15, 1)).empty());
  CHECK(fresh(row(16, 1)) == std::vector<uint32_t>{1});
  CHECK(fresh(row(16, 16)).empty());
}

TEST_CASE("blocks beyond the last position of the row are left alone") {
  BatchRow r = row(0, 5);
  r.blocks.push_back({8});  // reserved for later
  CHECK(fresh(r) == std::vector<uint32_t>{0});
}

TEST_CASE("logits are wanted for the last token of a row that samples, and for scored prompts") {
  BatchRow chunk = row(0, 4);
  chunk.samples.clear();
  BatchRow scored = row(0, 3, 8);
  scored.sampling.prompt_logprobs = 0;
  BatchRow only_scored = scored;
  only_scored.samples.clear();
  StepRows rows = step_rows();
  rows.fill({{1}, {chunk, row(0, 2, 4), scored, only_scored}, {}});
  const auto& wanted = rows.wanted();
  REQUIRE(wanted.size() == 6);
  CHECK(wanted[0].token == 5);
  CHECK(wanted[0].row == 1);
  CHECK(wanted[0].prompt_index == WantedLogits::kSample);
  CHECK(wanted[1].token == 6);
  CHECK(wanted[1].prompt_index == 0);
  CHECK(wanted[2].token == 7);
  CHECK(wanted[2].prompt_index == 1);
  CHECK(wanted[3].token == 8);
  CHECK(wanted[3].prompt_index == WantedLogits::kSample);
  CHECK(wanted[4].row == 3);
  CHECK(wanted[5].prompt_index == 1);
}

TEST_CASE("runs hold neighbours of one sequence and are cut at fixed positions") {
  for (const uint32_t size : {40u, 300u}) {
    CAPTURE(size);
    StepRows rows = step_rows();
    rows.fill({{1}, {row(10, size), row(3, 1, 30), row(0, 9, 40)}});
    const int32_t length = size == 40 ? 16 : 64;
    uint32_t next = 0;
    for (const TokenRun& run : rows.runs()) {
      CHECK(run.begin == next);
      CHECK(run.end > run.begin);
      next = run.end;
      const KvRow& first = rows.kv()[run.begin];
      const KvRow& last = rows.kv()[run.end - 1];
      CHECK(last.blocks == first.blocks);
      CHECK(last.position - first.position == static_cast<int32_t>(run.end - run.begin) - 1);
      CHECK(last.position / length == first.position / length);
    }
    CHECK(next == rows.size());
  }
}

}  // namespace baton
