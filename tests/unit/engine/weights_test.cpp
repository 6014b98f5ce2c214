// Several sets of weights in one engine, and what a file must be to become one of them.

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "runtime/engine/weights_loader.h"
#include "tests/unit/engine/engine_rig.h"

#include <doctest/doctest.h>

namespace baton {
namespace {

// A tiny model like Q4_1, but made of other random numbers or in another shape.
std::string other_model(const std::string& name, const std::string& arguments) {
  const std::string path = std::string(BATON_BINARY_DIR) + "/tests/tiny-" + name + ".gguf";
  if (std::filesystem::exists(path)) return path;
  const std::string draft = path + ".draft";
  const std::string script = std::string(BATON_SOURCE_DIR) + "/tests/oracle/data/make_tiny.py '" +
                             draft + "' " + arguments + " >/dev/null";
  const bool made = std::system(("/usr/bin/python3 " + script).c_str()) == 0 ||
                    std::system(("python3 " + script).c_str()) == 0;
  REQUIRE_MESSAGE(made, "make_tiny.py failed: it needs python3 with numpy");
  std::filesystem::rename(draft, path);
  return path;
}
std::string second_model() {
  return other_model("seed-2", "--type Q4_1 --seed 2");
}

std::string bytes_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
std::string written(const std::string& name, const std::string& bytes) {
  const std::string path = std::string(BATON_BINARY_DIR) + "/tests/" + name + ".gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::vector<TokenId> tokens_of(EngineDriver& driver, uint64_t version) {
  driver.reset_blocks();
  driver.weights_version = version;
  std::vector<TokenId> tokens = made_up_prompt(20, 5);
  const std::vector<BlockId> blocks = driver.take_blocks(40);
  std::vector<TokenId> made;
  uint32_t position = 0;
  while (made.size() < 12) {
    BatchRow row;
    row.tokens = std::move(tokens);
    row.position = position;
    row.blocks = blocks;
    position += static_cast<uint32_t>(row.tokens.size());
    row.blocks.resize(driver.engine().geometry().blocks_for(position));
    made.push_back(driver.step({row}).rows[0].samples.at(0).token);
    tokens = {made.back()};
  }
  driver.weights_version = 0;
  return made;
}

std::vector<TokenId> tokens_of_file(const std::string& path) {
  Compute compute(TeamOptions{});
  RigOptions options;
  options.weights = LlamaWeights::load(ModelFile::open(path).value(), compute).value();
  return tokens_of(EngineRig(options).driver(), 0);
}

TEST_CASE("two sets in one engine: each step computes with the one that it names, bit for bit") {
  EngineRig rig(RigOptions{});
  EngineDriver& driver = rig.driver();
  const std::vector<TokenId> first = tokens_of(driver, 0);
  const WeightsPrepared prepared = driver.prepare({2, 7, {second_model(), ""}});
  REQUIRE_MESSAGE(prepared.ok, prepared.text);
  CHECK(prepared.digest != 0);
  CHECK(prepared.bytes > 10000);
  CHECK_FALSE(prepared.plan_reused);
  CHECK(tokens_of(driver, 0) == first);  // prepared is not committed
  driver.engine().commit_weights(2);
  const std::vector<TokenId> second = tokens_of_file(second_model());
  CHECK(second != first);
  CHECK(tokens_of(driver, 2) == second);
  CHECK(tokens_of(driver, 1) == first);
  CHECK(tokens_of(driver, 0) == second);
  driver.engine().drop_weights(1);
  REQUIRE(driver.engine().weights().size() == 1);
  CHECK(driver.engine().weights()[0].version == 2);
  CHECK(driver.engine().weights()[0].source.path == second_model());
  CHECK(tokens_of(driver, 2) == second);
}

TEST_CASE("a set that is dropped while a step uses it stays until the step ends") {
  EngineRig rig(RigOptions{});
  EngineDriver& driver = rig.driver();
  REQUIRE(driver.prepare({2, 7, {second_model(), ""}}).ok);
  driver.engine().commit_weights(2);
  const std::vector<TokenId> first = tokens_of(driver, 1);
  driver.before_wait = [&] { driver.engine().drop_weights(1); };
  driver.reset_blocks();
  driver.weights_version = 1;
  BatchRow row;
  row.tokens = made_up_prompt(20, 5);
  row.blocks = driver.take_blocks(20);
  CHECK(driver.step({row}).rows[0].samples.at(0).token == first[0]);
}

TEST_CASE("a third set is refused, a dropped preparation says nothing, and its number is free") {
  EngineRig rig(RigOptions{});
  EngineDriver& driver = rig.driver();
  REQUIRE(driver.prepare({2, 7, {second_model(), ""}}).ok);
  const WeightsPrepared refused = driver.prepare({3, 8, {second_model(), ""}});
  CHECK_FALSE(refused.ok);
  CHECK(refused.code == ErrorCode::busy);
  CHECK(refused.text.find("2 sets") == 0);
  driver.engine().drop_weights(kUncommittedWeights);
  CHECK(driver.engine().weights().size() == 1);
  CHECK(driver.prepare({2, 9, {second_model(), ""}}).ok);
}

TEST_CASE("engines of one process share a set that both were told to prepare") {
  auto loader = std::make_shared<WeightsLoader>(tiny_weights("Q4_1")->identity(), PartOf{});
  const WeightsOrder order{2, 7, {second_model(), ""}};
  std::vector<WeightsLoader::Set> sets;
  std::mutex mutex;
  std::condition_variable arrived;
  const auto take = [&](Result<WeightsLoader::Set> set, int64_t) {
    const std::lock_guard lock(mutex);
    sets.push_back(*set);
    arrived.notify_all();
  };
  const auto wait_for = [&](size_t count) {
    std::unique_lock lock(mutex);
    arrived.wait(lock, [&] { return sets.size() == count; });
  };
  const WeightsLoader::Interest first = loader->load(order, take);
  wait_for(1);
  const WeightsLoader::Interest second = loader->load(order, take);
  wait_for(2);
  CHECK(sets[0] == sets[1]);
  sets.clear();  // nobody has it any more
  const WeightsLoader::Interest third = loader->load(order, take);
  wait_for(1);
  CHECK(sets[0] != nullptr);
  WeightsLoader::Interest nobody = loader->load({3, 8, {second_model(), ""}}, take);
  nobody.reset();
  loader->quiesce();
  loader.reset();
  CHECK(sets.size() == 1);
}

struct Fault {
  const char* name;
  std::string path;
  std::string sha256;
  ErrorCode code;
  std::string says;
};

std::vector<Fault> faults() {
  const std::string good = bytes_of(second_model());
  const ModelFile model = ModelFile::open(second_model()).value();
  const TensorInfo& matrix = *model.tensor("blk.1.ffn_up.weight");
  const TensorInfo& vector = *model.tensor("blk.0.attn_norm.weight");
  std::string scale = good;
  scale[matrix.offset + 20 + 2] = '\0';  // the second block's offset: f16 infinity
  scale[matrix.offset + 20 + 3] = '\x7c';
  std::string norm = good;
  const uint32_t nan = 0x7FC00000;
  std::memcpy(norm.data() + vector.offset + 12, &nan, sizeof nan);
  std::string magic = good;
  magic[0] = 'X';
  std::string merges = good;
  const size_t token = merges.find("<|im_start|>");
  merges[token + 3] = 'n';
  return {
      {"missing", "/nowhere/w.gguf", "", ErrorCode::not_found, "cannot be opened"},
      {"empty", written("bad-empty", ""), "", ErrorCode::bad_model, "0 bytes"},
      {"magic", written("bad-magic", magic), "", ErrorCode::bad_model, "bad-magic"},
      {"cut", written("bad-cut", good.substr(0, good.size() / 2)), "", ErrorCode::bad_model,
       "bad-cut"},
      {"header", written("bad-header", good.substr(0, 200)), "", ErrorCode::bad_model,
       "bad-header"},
      {"scale", written("bad-scale", scale), "", ErrorCode::bad_model,
       "tensor 'blk.1.ffn_up.weight' has a value that is not a number near element 32"},
      {"norm", written("bad-norm", norm), "", ErrorCode::bad_model,
       "tensor 'blk.0.attn_norm.weight' has a value that is not a number near element 3"},
      {"tokenizer", written("bad-tokenizer", merges), "", ErrorCode::conflict, "its tokenizer"},
      {"layers", other_model("layers", "--type Q4_1 --layers 3"), "", ErrorCode::conflict,
       "its number of layers is 3, that of the model that is served 2"},
      {"width", other_model("wide", "--type Q4_1 --ffn 160"), "", ErrorCode::conflict,
       "feed-forward width is 160"},
      {"untied", other_model("untied", "--type Q4_1 --untied"), "", ErrorCode::conflict,
       "its output matrix is one of its own"},
      {"sha", second_model(), std::string(64, 'a'), ErrorCode::corrupt, "its SHA-256 is"},
      {"folder", "/tmp", "", ErrorCode::not_found, "not a regular file"},
  };
}

TEST_CASE("T99: a file that does not fit is refused with a sentence, and nothing has changed") {
  EngineRig rig(RigOptions{});
  EngineDriver& driver = rig.driver();
  const std::vector<TokenId> before = tokens_of(driver, 0);
  uint64_t ticket = 1;
  for (const Fault& fault : faults()) {
    CAPTURE(fault.name);
    const WeightsPrepared prepared = driver.prepare({2, ticket++, {fault.path, fault.sha256}});
    CHECK_FALSE(prepared.ok);
    CHECK(prepared.code == fault.code);
    CHECK_MESSAGE(prepared.text.find(fault.says) != std::string::npos, prepared.text);
    CHECK(driver.engine().weights().size() == 1);
  }
  CHECK(tokens_of(driver, 0) == before);
  const std::string digits = sha256_of_file(second_model()).value();
  CHECK(driver.prepare({2, ticket, {second_model(), digits}}).ok);
}

TEST_CASE("an instance of several ranks prepares, commits, drops and fails as one") {
  const std::vector<TokenId> first = tokens_of_file(tiny_model_path("Q4_1"));
  const std::vector<TokenId> second = tokens_of_file(second_model());
  for (const auto& [tensor, stages] : {std::pair{2u, 1u}, {4u, 1u}, {1u, 2u}, {2u, 2u}}) {
    CAPTURE(tensor);
    CAPTURE(stages);
    RigOptions options;
    options.kv_blocks = 64;
    options.step_tokens_max = 64;
    options.tensor_parallel = tensor;
    options.pipeline_parallel = stages;
    EngineRig rig(options);
    EngineDriver& driver = rig.driver();
    CHECK(tokens_of(driver, 0) == first);
    CHECK_FALSE(driver.prepare({2, 1, {"/nowhere/w.gguf", ""}}).ok);
    const WeightsPrepared prepared = driver.prepare({2, 2, {second_model(), ""}});
    REQUIRE_MESSAGE(prepared.ok, prepared.text);
    CHECK(tokens_of(driver, 1) == first);
    driver.engine().commit_weights(2);
    CHECK(tokens_of(driver, 2) == second);
    CHECK(tokens_of(driver, 1) == first);
    driver.engine().drop_weights(1);
    CHECK(tokens_of(driver, 0) == second);
    const WeightsPrepared again = driver.prepare({3, 3, {tiny_model_path("Q4_1"), ""}});
    REQUIRE_MESSAGE(again.ok, again.text);
    CHECK(again.plan_reused);
    driver.engine().drop_weights(kUncommittedWeights);
    CHECK(driver.engine().weights().size() == 1);
    CHECK(driver.prepare({3, 4, {tiny_model_path("Q4_1"), ""}}).ok);
    driver.engine().commit_weights(3);
    CHECK(tokens_of(driver, 0) == first);
  }
}

TEST_CASE("other types of the same tensors are taken: a model may come back quantised otherwise") {
  EngineRig rig(RigOptions{});
  EngineDriver& driver = rig.driver();
  const std::string path = other_model("f32-seed-2", "--type F32 --seed 2");
  const WeightsPrepared prepared = driver.prepare({2, 1, {path, ""}});
  REQUIRE_MESSAGE(prepared.ok, prepared.text);
  driver.engine().commit_weights(2);
  CHECK(tokens_of(driver, 2) == tokens_of_file(path));
}

TEST_CASE("the digest tells one set from another, and is that of the bytes") {
  EngineRig rig(RigOptions{});
  EngineDriver& driver = rig.driver();
  auto digest_of = [&, ticket = uint64_t{0}](const std::string& path) mutable {
    const WeightsPrepared prepared = driver.prepare({2, ++ticket, {path, ""}});
    driver.engine().drop_weights(2);
    return prepared.digest;
  };
  const uint64_t digest = digest_of(second_model());
  CHECK(digest != 0);
  CHECK(driver.prepare({2, 99, {second_model(), ""}}).plan_reused);
  driver.engine().drop_weights(2);
  CHECK(digest_of(written("copy", bytes_of(second_model()))) == digest);
  CHECK(digest_of(other_model("seed-3", "--type Q4_1 --seed 3")) != digest);
}

}  // namespace
}  // namespace baton
