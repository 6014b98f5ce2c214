#include "runtime/model/model_config.h"

#include <doctest/doctest.h>

#include "tests/unit/model/gguf_builder.h"

namespace baton {
namespace {

using test::GgufBuilder;
using test::open_bytes;
using test::tiny_llama;

struct Defect {
  const char* name;
  std::function<void(GgufBuilder&)> apply;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::bad_model;
};

constexpr ErrorCode kUnsupported = ErrorCode::unsupported;

const std::vector<Defect> kDefects = {
    // Row 38.
    {"no heads",
     [](auto& f) { f.u32("llama.attention.head_count", 0); },
     {"'llama.attention.head_count'", "got 0"}},
    {"heads that do not divide",
     [](auto& f) { f.u32("llama.attention.head_count", 3); },
     {"'llama.attention.head_count'", "got 3 heads", "divides the embedding length, 32"}},
    {"heads of odd length",
     [](auto& f) { f.u32("llama.attention.head_count", 32); },
     {"heads of 1 values", "an even number"}},
    {"no kv heads",
     [](auto& f) { f.u32("llama.attention.head_count_kv", 0); },
     {"'llama.attention.head_count_kv'", "got 0"}},
    {"more kv heads than heads",
     [](auto& f) { f.u32("llama.attention.head_count_kv", 4); },
     {"'llama.attention.head_count_kv'", "got 4", "from 1 to 2"}},
    {"kv heads that do not divide",
     [](auto& f) {
       f.u32("llama.attention.head_count", 4).u32("llama.attention.head_count_kv", 3);
     },
     {"3 key-value heads", "divides the 4 heads"}},
    {"10^9 layers",
     [](auto& f) { f.u32("llama.block_count", 1'000'000'000); },
     {"'llama.block_count'", "got 1000000000", "from 1 to 512"}},
    {"no layers", [](auto& f) { f.u32("llama.block_count", 0); }, {"'llama.block_count'", "got 0"}},
    {"layer count as a string",
     [](auto& f) { f.str("llama.block_count", "1"); },
     {"'llama.block_count'", "got '1'"}},
    {"odd rope dimensions",
     [](auto& f) { f.u32("llama.rope.dimension_count", 15); },
     {"'llama.rope.dimension_count'", "got 15", "an even number"}},
    {"rope dimensions beyond the head",
     [](auto& f) { f.u32("llama.rope.dimension_count", 32); },
     {"'llama.rope.dimension_count'", "got 32", "expected 16"}},
    {"partial rope",
     [](auto& f) { f.u32("llama.rope.dimension_count", 8); },
     {"8 of 16 dimensions is not supported"},
     kUnsupported},
    {"more tokens than embedding rows",
     [](auto& f) { f.tensor_named("token_embd.weight").dims[1] -= 1; },
     {"'tokenizer.ggml.tokens'", "got 260 tokens", "expected 259"}},
    {"another vocabulary size",
     [](auto& f) { f.u32("llama.vocab_size", 100); },
     {"'llama.vocab_size'", "got 100"}},
    {"no embedding",
     [](auto& f) { f.erase_tensor("token_embd.weight"); },
     {"'token_embd.weight'", "no such tensor"}},
    {"a layer lacks a matrix",
     [](auto& f) { f.erase_tensor("blk.0.ffn_gate.weight"); },
     {"'blk.0.ffn_gate.weight'", "no such tensor"}},
    {"a layer too many in the metadata",
     [](auto& f) { f.u32("llama.block_count", 2); },
     {"'blk.1.attn_norm.weight'", "no such tensor"}},
    {"a matrix of another shape",
     [](auto& f) {
       f.tensor_named("blk.0.attn_k.weight").dims = {32, 32};
     },
     {"'blk.0.attn_k.weight'", "got 32 rows of 32", "expected 16 of 32"}},
    {"a norm of another length",
     [](auto& f) { f.tensor_named("output_norm.weight").dims = {64}; },
     {"'output_norm.weight'", "got 1 rows of 64", "expected 1 of 32"}},
    {"epsilon of zero",
     [](auto& f) { f.f32("llama.attention.layer_norm_rms_epsilon", 0); },
     {"'llama.attention.layer_norm_rms_epsilon'", "above 0"}},
    {"epsilon that is no number",
     [](auto& f) { f.f32("llama.attention.layer_norm_rms_epsilon", 0.0f / 0.0f); },
     {"layer_norm_rms_epsilon"}},
    {"no epsilon",
     [](auto& f) { f.erase("llama.attention.layer_norm_rms_epsilon"); },
     {"'llama.attention.layer_norm_rms_epsilon'", "no such key"}},
    {"infinite rope base",
     [](auto& f) { f.f32("llama.rope.freq_base", 1.0f / 0.0f); },
     {"'llama.rope.freq_base'"}},
    {"no context", [](auto& f) { f.u32("llama.context_length", 0); }, {"'llama.context_length'"}},
    {"no architecture",
     [](auto& f) { f.erase("general.architecture"); },
     {"'general.architecture'", "no such key"}},
    // Sound, but not computed here: one sentence that says what is, too.
    {"another architecture",
     [](auto& f) { f.str("general.architecture", "qwen2"); },
     {"architecture 'qwen2' is not supported; supported is 'llama'"},
     kUnsupported},
    {"split model",
     [](auto& f) { f.raw("split.count", 2, std::string("\3\0", 2)); },
     {"split into several files", "supported is one file"},
     kUnsupported},
    {"rope scaling by yarn",
     [](auto& f) { f.str("llama.rope.scaling.type", "yarn"); },
     {"rope scaling 'yarn' is not supported"},
     kUnsupported},
    {"linear rope scaling by 4",
     [](auto& f) {
       f.str("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 4);
     },
     {"rope scaling 'linear' with factor 4 is not supported"},
     kUnsupported},
    {"rope factors of Llama 3.1",
     [](auto& f) {
       f.tensor({"rope_freqs.weight", {8}, 0, {}, {}, {}});
     },
     {"'rope_freqs.weight' is not supported"},
     kUnsupported},
    {"a bias",
     [](auto& f) {
       f.tensor({"blk.0.attn_q.bias", {32}, 0, {}, {}, {}});
     },
     {"'blk.0.attn_q.bias' is not supported", "without biases"},
     kUnsupported},
    {"experts",
     [](auto& f) { f.u32("llama.expert_count", 8); },
     {"'llama.expert_count' is 8, which is not supported"},
     kUnsupported},
    {"heads of their own length",
     [](auto& f) { f.u32("llama.attention.key_length", 32); },
     {"'llama.attention.key_length' is 32, which is not supported"},
     kUnsupported},
    {"a norm in F16",
     [](auto& f) { f.tensor_named("output_norm.weight").type = 1; },
     {"'output_norm.weight' of type F16 is not supported"},
     kUnsupported},
};

}  // namespace

TEST_CASE("a model whose sizes do not fit together is refused with key or tensor") {
  for (const Defect& defect : kDefects) {
    CAPTURE(defect.name);
    GgufBuilder built = tiny_llama();
    defect.apply(built);
    const Result<ModelFile> file = open_bytes(built);
    REQUIRE_MESSAGE(file.ok(), file.error().text);
    const Result<ModelConfig> config = read_model_config(*file);
    REQUIRE_FALSE(config.ok());
    const std::string& text = config.error().text;
    CAPTURE(text);
    CHECK(config.error().code == defect.code);
    CHECK(text.starts_with("model.gguf: "));
    CHECK((defect.code == kUnsupported || text.starts_with("model.gguf: byte ")));
    CHECK((defect.code != kUnsupported || text.find("supported ") != std::string::npos));
    for (const std::string& part : defect.says) {
      CAPTURE(part);
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("a good model gives its configuration") {
  GgufBuilder built = tiny_llama();
  built.str("llama.rope.scaling.type", "none");
  const Result<ModelFile> file = open_bytes(built);
  REQUIRE(file.ok());
  const Result<ModelConfig> config = read_model_config(*file);
  REQUIRE_MESSAGE(config.ok(), config.error().text);
  CHECK(config->name == "model");
  CHECK(config->layers == 1);
  CHECK(config->hidden == 32);
  CHECK(config->ffn == 64);
  CHECK(config->heads == 2);
  CHECK(config->kv_heads == 1);
  CHECK(config->head_dim == 16);
  CHECK(config->kv_width() == 16);
  CHECK(config->context == 64);
  CHECK(config->vocab == 260);
  CHECK(config->rope_base == 10000.0f);
  CHECK(config->norm_eps == 1e-5f);
  CHECK(config->tied);
  CHECK(config->parameters == 260 * 32 + 3 * 32 + 2 * 32 * 32 + 2 * 32 * 16 + 3 * 32 * 64);
  CHECK(config->weight_types == "F32 (5), Q4_1 (2), BF16 (1), F16 (1), Q4_0 (1), Q8_0 (1)");

  built.tensor({"output.weight", {32, 260}, 1, {}, {}, {}});
  built.erase("llama.attention.head_count_kv").str("general.name", "A name");
  built.tensor_named("blk.0.attn_k.weight").dims = {32, 32};
  built.tensor_named("blk.0.attn_v.weight").dims = {32, 32};
  const Result<ModelFile> untied_file = open_bytes(built);
  REQUIRE_MESSAGE(untied_file.ok(), untied_file.error().text);
  const Result<ModelConfig> untied = read_model_config(*untied_file);
  REQUIRE_MESSAGE(untied.ok(), untied.error().text);
  CHECK_FALSE(untied->tied);
  CHECK(untied->kv_heads == 2);
  CHECK(untied->name == "A name");
}

}  // namespace baton
