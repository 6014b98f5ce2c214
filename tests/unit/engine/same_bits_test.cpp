// The same bits (design.md, section 6): what an engine says about a sequence depends on the
// sequence alone. Every variant is compared with the plainest run there is: alone, whole, one
// thread.

#include "tests/unit/engine/engine_rig.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

constexpr uint32_t kNew = 6;

Sequence sequence(std::size_t size, uint64_t seed) {
  Sequence s;
  s.prompt = made_up_prompt(size, seed);
  s.sampling.top_logprobs = 3;
  s.sampling.seed = 1000 + seed;
  if (seed % 2 == 1) {  // half of them sample, with everything on
    s.sampling.temperature = 0.9f;
    s.sampling.top_k = 40;
    s.sampling.top_p = 0.95f;
    s.sampling.min_p = 0.01f;
    s.sampling.repetition_penalty = 1.1f;
    s.sampling.presence_penalty = 0.2f;
    s.sampling.frequency_penalty = 0.1f;
  }
  return s;
}

std::vector<Sequence> sequences(std::size_t count) {
  const std::size_t sizes[] = {1, 5, 16, 17, 33, 64, 65, 100, 130, 31, 2, 257};
  std::vector<Sequence> out;
  for (std::size_t i = 0; i < count; ++i) out.push_back(sequence(sizes[i % 12], i));
  return out;
}

std::vector<Trace> each_alone(EngineRig& rig, const std::vector<Sequence>& all) {
  std::vector<Trace> out;
  for (const Sequence& s : all) out.push_back(rig.run_alone(s, kNew));
  return out;
}

// The kinds of engine that differ in code paths: quantised, exact, plain weights, head widths that
// are no multiple of 32, and a pool of halves.
const std::vector<RigOptions>& kinds() {
  static const std::vector<RigOptions> all = {
      rig_options("Q4_1", ActivationMode::int8, KvDtype::bf16),
      rig_options("Q4_1 eight kv-heads", ActivationMode::int8, KvDtype::f16),
      rig_options("Q8_0", ActivationMode::int8, KvDtype::f32),
      rig_options("Q4_0", ActivationMode::f32, KvDtype::f32),
      rig_options("F32 three kv-heads", ActivationMode::f32, KvDtype::bf16),
      rig_options("BF16", ActivationMode::int8, KvDtype::bf16),
  };
  return all;
}

}  // namespace

TEST_CASE("packed prompts and a batch of 32 give the bits of each alone (S12)") {
  for (const RigOptions& kind : kinds()) {
    CAPTURE(kind.model);
    EngineRig rig(kind);
    const std::vector<Sequence> all = sequences(32);
    CHECK(same_bits(rig.run(all, kNew), each_alone(rig, all)));
  }
}

TEST_CASE(
    "sequences that join a running batch, chunks beside packs, give the bits of each alone (S9)") {
  for (const RigOptions& kind : kinds()) {
    CAPTURE(kind.model);
    EngineRig rig(kind);
    std::vector<Sequence> all = sequences(12);
    for (std::size_t i = 0; i < all.size(); ++i) {
      all[i].start = static_cast<uint32_t>(i % 5);
      all[i].chunk = static_cast<uint32_t>(i % 3 * 23);  // prefill chunks beside decoded tokens
    }
    CHECK(same_bits(rig.run(all, kNew), each_alone(rig, sequences(12))));
  }
}

TEST_CASE("a prompt in chunks of any size gives the bits of the whole prompt") {
  for (const RigOptions& kind : kinds()) {
    CAPTURE(kind.model);
    EngineRig rig(kind);
    const Sequence whole = sequence(257, 3);
    const Trace expected = rig.run_alone(whole, kNew);
    for (const uint32_t chunk : {1u, 2u, 7u, 16u, 50u, 64u, 100u, 256u}) {
      CAPTURE(chunk);
      Sequence chunked = whole;
      chunked.chunk = chunk;
      CHECK(same_bits(rig.run_alone(chunked, kNew), expected));
    }
  }
}

TEST_CASE("decoding gives the bits of a prefill of the same tokens") {
  for (const RigOptions& kind : kinds()) {
    CAPTURE(kind.model);
    EngineRig rig(kind);
    const Sequence s = sequence(60, 4);
    const Trace decoded = rig.run_alone(s, kNew);
    Sequence replayed = s;
    for (uint32_t i = 0; i + 1 < kNew; ++i) replayed.prompt.push_back(decoded.tokens[i]);
    const Trace prefilled = rig.run_alone(replayed, 1);
    CHECK(prefilled.tokens.front() == decoded.tokens.back());
    CHECK(prefilled.logits.front() == decoded.logits.back());
    CHECK(prefilled.logprobs.front() == decoded.logprobs.back());
  }
}

TEST_CASE("block sizes, threads and instruction sets do not move a bit") {
  struct Variant {
    uint32_t block_tokens;
    int threads;
    Isa isa;
  };
  std::vector<Variant> variants = {{32, 1, detect()}, {64, 2, detect()}, {32, 3, detect()}};
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::amx}) {
    if (!isa_supported(isa)) continue;
    if (isa != Isa::scalar) variants.push_back({16, 1, isa});
    variants.push_back({16, 2, isa});
  }
  constexpr std::size_t kScalarSequences = 4;  // a thousand times slower, and the same path
  for (const RigOptions& kind : kinds()) {
    CAPTURE(kind.model);
    const std::vector<Sequence> all = sequences(12);
    EngineRig plain(kind);
    const std::vector<Trace> expected = each_alone(plain, all);
    for (const Variant& v : variants) {
      CAPTURE(v.block_tokens);
      CAPTURE(v.threads);
      CAPTURE(isa_name(v.isa));
      RigOptions variant = kind;
      variant.block_tokens = v.block_tokens;
      variant.threads = v.threads;
      variant.isa = v.isa;
      EngineRig rig(variant);
      const std::size_t count = v.isa == Isa::scalar ? kScalarSequences : all.size();
      const std::vector<Sequence> some(all.begin(), all.begin() + count);
      const std::vector<Trace> wanted(expected.begin(), expected.begin() + count);
      CHECK(same_bits(rig.run(some, kNew), wanted));
    }
  }
}

TEST_CASE("the same job twice gives the same bits, also in another engine (S13)") {
  const std::vector<Sequence> all = sequences(12);
  EngineRig first(kinds().front());
  const std::vector<Trace> expected = first.run(all, kNew);
  CHECK(same_bits(first.run(all, kNew), expected));
  EngineRig second(kinds().front());
  CHECK(same_bits(second.run(all, kNew), expected));
  CHECK(expected[1].tokens != expected[3].tokens);  // the test can tell runs apart
}

}  // namespace baton
