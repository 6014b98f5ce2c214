// What blocks held before, and what goes wrong in other rows, must never show.

#include "tests/unit/engine/engine_rig.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>

namespace baton {
namespace {

constexpr uint32_t kNew = 20;  // crosses a block of 16

Sequence sequence(uint64_t seed, std::size_t size) {
  Sequence s;
  s.prompt = made_up_prompt(size, seed);
  s.sampling.top_logprobs = 1;
  return s;
}

// Fills every byte of the pool: 0xFF makes NaNs of all types.
void soil(CpuEngine& engine, int byte) {
  for (uint32_t b = 0; b < engine.block_count(); ++b) {
    const std::span<std::byte> block = engine.block_bytes({b});
    std::memset(block.data(), byte, block.size());
  }
}

bool all_zero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

constexpr TokenId kPoison = 300;

// The untied F32 model with one value of an embedding row replaced: a token that breaks its row.
std::shared_ptr<const LlamaWeights> poisoned_weights(float value) {
  const std::string path = tiny_model_path("F32 untied");
  std::ifstream in(path, std::ios::binary);
  const std::string raw((std::istreambuf_iterator<char>(in)), {});
  std::vector<std::byte> bytes(raw.size());
  std::memcpy(bytes.data(), raw.data(), raw.size());
  const ModelFile original = ModelFile::open(path).value();
  const TensorInfo& embedding = *original.tensor("token_embd.weight");
  const std::size_t at = embedding.offset + (kPoison * embedding.columns() + 5) * sizeof(float);
  std::memcpy(bytes.data() + at, &value, sizeof value);
  Compute compute(TeamOptions{});
  return LlamaWeights::load(ModelFile::from_bytes(std::move(bytes), "poisoned").value(), compute)
      .value();
}

}  // namespace

TEST_CASE("dirty blocks give the bits of clean ones") {
  for (const KvDtype dtype : {KvDtype::f32, KvDtype::bf16, KvDtype::f16}) {
    for (const uint32_t block_tokens : {16u, 32u, 64u}) {
      for (const uint32_t chunk : {0u, 5u}) {
        CAPTURE(dtype_name(dtype));
        CAPTURE(block_tokens);
        RigOptions options;
        options.kv_dtype = dtype;
        options.block_tokens = block_tokens;
        options.threads = 2;
        options.kv_blocks = 32;
        EngineRig rig(options);
        std::vector<Sequence> all = {sequence(1, 37), sequence(2, 16), sequence(3, 1)};
        for (Sequence& s : all) s.chunk = chunk;
        const std::vector<Trace> clean = rig.run(all, kNew);
        for (const int byte : {0xFF, 0x7F, 0x5A}) {
          soil(rig.engine(), byte);
          CHECK(same_bits(rig.run(all, kNew), clean));
        }
      }
    }
  }
}

TEST_CASE("positions of a block that were never written are zero") {
  RigOptions options;
  options.kv_dtype = KvDtype::f32;
  options.kv_blocks = 4;
  EngineRig rig(options);
  soil(rig.engine(), 0xFF);
  rig.run_alone(sequence(4, 21), 0);
  // Tokens 21..31 are the last 11 of block 1: in K [dim][token], in V [token][dim].
  const KvLayout layout = kv_layout_of(rig.engine().geometry());
  const std::span<const std::byte> block = rig.engine().block_bytes({1});
  for (std::size_t layer = 0; layer < layout.layers; ++layer) {
    for (std::size_t head = 0; head < layout.kv_heads; ++head) {
      for (std::size_t dim = 0; dim < layout.head_dim; ++dim) {
        const std::size_t k = layout.k_offset(layer, head) + layout.k_index(5, dim) * 4;
        CHECK(all_zero(block.subspan(k, 11 * 4)));
      }
      const std::size_t v = layout.v_offset(layer, head) + layout.v_index(5, 0) * 4;
      CHECK(all_zero(block.subspan(v, 11 * layout.head_dim * 4)));
    }
  }
  CHECK_FALSE(all_zero(block));
  CHECK_FALSE(all_zero(rig.engine().block_bytes({0})));
}

TEST_CASE("equal sequences fill blocks with equal bytes, so that digests agree") {
  RigOptions options;
  options.kv_blocks = 8;
  EngineRig rig(options);
  rig.run_alone(sequence(5, 40), 0);
  std::vector<std::byte> first;
  for (uint32_t b = 0; b < 3; ++b) {
    const auto bytes = rig.engine().block_bytes({b});
    first.insert(first.end(), bytes.begin(), bytes.end());
  }
  soil(rig.engine(), 0xAB);
  Sequence chunked = sequence(5, 40);
  chunked.chunk = 3;
  rig.run_alone(chunked, 0);
  for (uint32_t b = 0; b < 3; ++b) {
    const auto bytes = rig.engine().block_bytes({b});
    CHECK(std::memcmp(bytes.data(), first.data() + b * bytes.size(), bytes.size()) == 0);
  }
}

TEST_CASE("a copy of a sequence's blocks goes on with the same bits elsewhere") {
  RigOptions options;
  EngineRig source(options);
  EngineRig target(options);
  const Sequence s = sequence(6, 45);
  const Trace whole = source.run_alone(s, 2);
  source.run_alone(s, 1);
  soil(target.engine(), 0xFF);
  for (uint32_t b = 0; b < 3; ++b) {  // the hand-off: whole blocks, to other ids
    const auto from = source.engine().block_bytes({b});
    std::memcpy(target.engine().block_bytes({7 - b}).data(), from.data(), from.size());
  }
  BatchRow row;
  row.tokens = {whole.tokens[0]};
  row.position = 45;
  row.blocks = {{7}, {6}, {5}};
  const RowResult result = target.driver().step({row}).rows.front();
  CHECK(result.samples.at(0).token == whole.tokens[1]);
  CHECK(result.samples.at(0).logprob == whole.logprobs[1]);
}

TEST_CASE("a row with a numerical error has no token and does not hurt its neighbours") {
  for (const float value :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const ActivationMode mode : {ActivationMode::f32, ActivationMode::int8}) {
      RigOptions options;
      options.weights = poisoned_weights(value);
      options.mode = mode;
      options.threads = 2;
      options.kv_blocks = 64;
      EngineRig rig(options);
      std::vector<Sequence> healthy = {sequence(7, 30), sequence(8, 50), sequence(9, 3)};
      for (Sequence& s : healthy) {
        std::replace(s.prompt.begin(), s.prompt.end(), kPoison, TokenId{1});
        s.sampling.prompt_logprobs = 0;
        s.sampling.logit_bias = {{kPoison, -100.0f}};  // never generated
      }
      Sequence broken = healthy[0];
      broken.prompt[10] = kPoison;
      broken.sampling.prompt_logprobs = -1;
      Sequence broken_score = broken;
      broken_score.sampling.prompt_logprobs = 1;
      const std::vector<Trace> expected = rig.run(healthy, kNew);
      const std::vector<Trace> mixed =
          rig.run({healthy[0], broken, healthy[1], broken_score, healthy[2]}, kNew);
      CHECK(mixed[1].numerical_error);
      CHECK(mixed[3].numerical_error);
      CHECK(same_bits(mixed[0], expected[0]));
      CHECK(same_bits(mixed[2], expected[1]));
      CHECK(same_bits(mixed[4], expected[2]));
      CHECK(same_bits(rig.run(healthy, kNew), expected));  // in blocks that hold NaNs now
    }
  }
}

}  // namespace baton
