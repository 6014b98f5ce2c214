// Instances of several ranks (design.md, sections 5 and 6; numerics.md rules 7 and 8): the same
// bits as one rank, and the same KV cache, divided. Ranks are threads of this process here.

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/unit/engine/engine_rig.h"
#include "tests/unit/model/oracle_models.h"
#include "transport/shm/shm_group.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

constexpr uint32_t kNew = 4;
constexpr uint32_t kBlocks = 128;

std::vector<Sequence> sequences(std::size_t count) {
  const std::size_t sizes[] = {1, 17, 64, 33, 130, 5, 257, 16};
  std::vector<Sequence> out;
  for (std::size_t i = 0; i < count; ++i) {
    Sequence s;
    s.prompt = made_up_prompt(sizes[i % 8], i);
    s.sampling.top_logprobs = 2;
    s.sampling.seed = 77 + i;
    if (i % 2 == 1) {
      s.sampling.temperature = 0.9f;
      s.sampling.top_p = 0.95f;
      s.sampling.frequency_penalty = 0.1f;
    }
    if (i % 3 == 2) s.sampling.prompt_logprobs = 1;
    s.start = static_cast<uint32_t>(i % 3);
    s.chunk = static_cast<uint32_t>(i % 4 * 23);
    out.push_back(s);
  }
  return out;
}

RigOptions kind(const std::string& model, ActivationMode mode, KvDtype dtype) {
  RigOptions options = rig_options(model, mode, dtype);
  options.kv_blocks = kBlocks;
  options.step_tokens_max = 600;
  return options;
}

std::vector<RigOptions> kinds() {
  return {
      kind("Q4_1", ActivationMode::int8, KvDtype::bf16),
      kind("Q4_1 eight kv-heads", ActivationMode::int8, KvDtype::f16),
      kind("F32 three kv-heads", ActivationMode::f32, KvDtype::bf16),
      kind("F32 four layers", ActivationMode::f32, KvDtype::f32),
      kind("F32 as many kv-heads as heads", ActivationMode::f32, KvDtype::bf16),
      kind("F32 one kv-head", ActivationMode::int8, KvDtype::f32),
      kind("F32 untied", ActivationMode::f32, KvDtype::f32),
      kind("Q8_0", ActivationMode::int8, KvDtype::bf16),
  };
}

bool possible(const ModelConfig& config, const Degrees& d) {
  return d.tensor_parallel <= config.heads && d.pipeline_parallel <= config.layers;
}

// Every rank's pool holds exactly what the one rank's holds of its layers and heads.
bool same_cache(CpuEngine& one, CpuEngine& many) {
  const KvGeometry& g = one.geometry();
  const uint64_t head_bytes = uint64_t{g.block_tokens} * g.head_dim * dtype_bytes(g.dtype);
  const Placement& placement = many.placement();
  for (uint32_t rank = 0; rank < placement.ranks.size(); ++rank) {
    const Box& box = placement.ranks[rank];
    for (uint32_t block = 0; block < one.block_count(); ++block) {
      const std::byte* whole = one.block_bytes({block}).data();
      const std::byte* part = many.block_bytes(rank, {block}).data();
      for (uint32_t layer = box.layers.begin; layer < box.layers.end; ++layer) {
        for (uint32_t kv = 0; kv < 2; ++kv) {
          const std::byte* heads =
              whole + ((uint64_t{layer} * 2 + kv) * g.kv_heads + box.heads.begin) * head_bytes;
          const uint64_t bytes = box.heads.size() * head_bytes;
          if (std::memcmp(heads, part, bytes) != 0) return false;
          part += bytes;
        }
      }
    }
  }
  return true;
}

RigOptions with(RigOptions options, const Degrees& degrees) {
  options.tensor_parallel = degrees.tensor_parallel;
  options.pipeline_parallel = degrees.pipeline_parallel;
  return options;
}

}  // namespace

TEST_CASE("any number of ranks and stages gives the bits and the cache of one rank") {
  const std::vector<Sequence> all = sequences(6);
  for (const RigOptions& options : kinds()) {
    CAPTURE(options.model);
    EngineRig one(options);
    const std::vector<Trace> expected = one.run(all, kNew);
    for (const Degrees degrees : {Degrees{2, 1},
                                  {3, 1},
                                  {4, 1},
                                  {8, 1},
                                  {1, 2},
                                  {1, 3},
                                  {2, 2},
                                  {3, 2},
                                  {4, 2},
                                  {2, 3},
                                  {3, 3}}) {
      if (!possible(tiny_weights(options.model)->config(), degrees)) continue;
      CAPTURE(degrees.tensor_parallel);
      CAPTURE(degrees.pipeline_parallel);
      EngineRig many(with(options, degrees));
      CHECK(many.engine().placement().ranks.size() ==
            degrees.tensor_parallel * degrees.pipeline_parallel);
      CHECK(same_bits(many.run(all, kNew), expected));
      CHECK(same_cache(one.engine(), many.engine()));
    }
  }
}

TEST_CASE("threads, block sizes and instruction sets do not move a bit of an instance") {
  const std::vector<Sequence> all = sequences(5);
  for (std::size_t i = 0; i < 3; ++i) {
    const RigOptions options = kinds()[i];
    CAPTURE(options.model);
    EngineRig one(options);
    const std::vector<Trace> expected = one.run(all, kNew);
    for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
      if (!isa_supported(isa) || (isa == Isa::scalar && i > 0)) continue;  // slow, the same path
      CAPTURE(isa_name(isa));
      for (const int threads : {1, 2}) {
        CAPTURE(threads);
        // Not many more threads than cores: they would wait for each other most of the time.
        RigOptions variant = with(options, threads == 1 ? Degrees{3, 2} : Degrees{2, 1});
        variant.isa = isa;
        variant.threads = threads;
        variant.block_tokens = threads == 1 ? 64 : 32;
        EngineRig many(variant);
        CHECK(same_bits(many.run(all, kNew), expected));
      }
    }
  }
}

TEST_CASE("warm-up leaves every rank's pool as if nothing had been there") {
  EngineRig rig(with(kinds()[1], {3, 2}));
  rig.engine().warm_up();
  for (uint32_t rank = 0; rank < 6; ++rank) {
    const auto bytes = rig.engine().block_bytes(rank, {0});
    CHECK(std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}

TEST_CASE("the real model on 2 and 3 ranks gives the bits and the cache of one") {
  const std::optional<std::string> model = test::real_model();
  if (!model) return;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  MESSAGE("many minutes under a sanitizer: the tiny models take the same paths");
  return;
#endif
  RigOptions options = kind(*model, ActivationMode::int8, KvDtype::bf16);
  std::vector<Sequence> all = sequences(3);
  all.push_back(all.front());
  all.back().prompt = made_up_prompt(180, 9, 49152);
  for (const ActivationMode mode : {ActivationMode::int8, ActivationMode::f32}) {
    options.mode = mode;
    options.kv_dtype = default_kv_dtype(mode);
    EngineRig one(options);
    const std::vector<Trace> expected = one.run(all, kNew);
    for (const Degrees degrees : {Degrees{2, 1}, {3, 1}, {1, 2}}) {
      CAPTURE(degrees.tensor_parallel);
      CAPTURE(degrees.pipeline_parallel);
      EngineRig many(with(options, degrees));
      CHECK(same_bits(many.run(all, kNew), expected));
      CHECK(same_cache(one.engine(), many.engine()));
    }
  }
}

TEST_CASE("each rank packs its part of the weights only") {
  const std::string model = "Q4_1 eight kv-heads";
  const uint64_t whole = tiny_weights(model)->bytes();
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const auto part = tiny_weights(model, {2, 2, rank});
    // Half the layers, half of each matrix; the vocabulary of this model is a single tile.
    CHECK(part->layers().size() == tiny_weights(model)->layers().size() / 2);
    CHECK(part->bytes() < whole / 2);
  }
  CHECK(tiny_weights(model, {2, 2, 1})->bytes() > tiny_weights(model, {2, 2, 0})->bytes());
}

TEST_CASE("parts of a model cover every output exactly once, and heads as placements say") {
  ModelConfig config;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const auto pick = [&](uint64_t what, uint32_t max) {
      return 1 + static_cast<uint32_t>(made_up_prompt(1, seed * 16 + what, max).front());
    };
    config.kv_heads = pick(0, 6);
    config.heads = config.kv_heads * pick(1, 5);
    config.head_dim = 2 * pick(2, 40);
    config.hidden = config.heads * config.head_dim;
    config.layers = pick(3, 12);
    config.ffn = pick(4, 3000);
    config.vocab = pick(5, 9000);
    PartOf of{pick(6, config.heads), pick(7, config.layers), 0};
    const Placement placement = placement_of(config, of, KvDtype::f32, 16);
    uint32_t hidden = 0, ffn = 0, vocab = 0, heads = 0;
    for (of.rank = 0; of.rank < of.ranks(); ++of.rank) {
      const ModelPart part = part_of_model(config, of).value();
      if (of.tensor_rank() == 0) hidden = ffn = vocab = heads = 0;
      CHECK(part.hidden_rows.begin == hidden);
      CHECK(part.ffn_rows.begin == ffn);
      CHECK(part.vocab_rows.begin == vocab);
      CHECK(part.query_heads.begin == heads);
      CHECK((part.ffn_rows.begin % 32 == 0 || part.ffn_rows.empty()));
      CHECK((part.vocab_rows.begin % 1024 == 0 || part.vocab_rows.empty()));
      CHECK(placement.ranks[of.rank] == Box{part.layers, part.kv_heads});
      CHECK(part.query_heads_skipped(config) < config.heads / config.kv_heads);
      hidden = part.hidden_rows.end;
      ffn = part.ffn_rows.end;
      vocab = part.vocab_rows.end;
      heads = part.query_heads.end;
      if (of.tensor_rank() + 1 < of.tensor_parallel) continue;
      CHECK(hidden == config.hidden);
      CHECK(ffn == config.ffn);
      CHECK(vocab == config.vocab);
      CHECK(heads == config.heads);
    }
  }
}

TEST_CASE("degrees that a model has no heads or layers for are refused with both numbers") {
  const ModelConfig& config = tiny_weights("Q4_1")->config();
  const auto tensor = part_of_model(config, {config.heads + 1, 1, 0});
  REQUIRE(!tensor.ok());
  CHECK(tensor.error().text.find(std::to_string(config.heads)) != std::string::npos);
  const auto pipeline = part_of_model(config, {1, config.layers + 1, 0});
  REQUIRE(!pipeline.ok());
  CHECK(pipeline.error().code == ErrorCode::invalid_argument);
}

TEST_CASE("a batch of an instance that breaks has no result, and the breach is told") {
  CpuEngineOptions options;
  options.kv_blocks = 8;
  const ModelConfig& config = tiny_weights("Q4_1")->config();
  ShmGroupOptions shape;
  shape.size = 2;
  shape.window_bytes = CpuEngine::window_bytes(config, options, {2, 1, 0}).value();
  std::shared_ptr<ShmGroup> first = ShmGroup::create(shape).value();
  shape.index = 1;
  auto second = ShmGroup::join(first->name(), shape).value();
  std::thread other([&] { CHECK(second->gather(kSecond * 10).ok()); });
  CHECK(first->gather(kSecond * 10).ok());
  other.join();
  std::atomic<bool> told{false};
  first->on_broken(
      [&](const Error& error) { told = error.text.find("the test says so") != std::string::npos; });
  options.group = first;
  std::atomic<int> results{0};
  auto engine =
      CpuEngine::create(tiny_weights("Q4_1", {2, 1, 0}), std::make_shared<Compute>(TeamOptions{}),
                        options, [&](Mail) { ++results; })
          .value();
  Batch batch;
  batch.rows.resize(1);
  batch.rows[0].tokens = {1, 2, 3};
  batch.rows[0].blocks = {{0}};
  engine->submit(batch, ActorId{0, kPrefillSlot, 1});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  second->abort("the test says so");
  for (int i = 0; i < 500 && !told; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  CHECK(told);
  CHECK(engine->busy());
  engine.reset();
  CHECK(results == 0);
}

}  // namespace baton
