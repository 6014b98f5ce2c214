#include "launch/serve/cluster_file.h"

#include "launch/serve/instance_flags.h"

#include <doctest/doctest.h>

using namespace baton;

namespace {

InstanceDefaults defaults() {
  InstanceDefaults d;
  d.prefill.block_tokens = 32;
  d.decode.threads = 3;
  return d;
}

std::string fault_of(const std::string& text) {
  const auto read = parse_cluster_file(text, "c.toml", defaults());
  return read.ok() ? "no fault" : read.error().text;
}

}  // namespace

TEST_CASE("a cluster file lists instances of several shapes, prefill first") {
  const auto read = parse_cluster_file(
      "kv-layer-groups = 3\n"
      "kv-digests = false\n"
      "[[decode]]\n"
      "tensor-parallel = 3\n"
      "kv-dtype = \"f16\"\n"
      "\n"
      "[[prefill]]\n"
      "instances = 2\n"
      "tensor-parallel = 2\n"
      "pipeline-parallel = 2\n"
      "block-size = 64\n"
      "kv-cache-memory = \"64MiB\"\n"
      "threads = 1\n"
      "[[decode]]\n",
      "c.toml", defaults());
  REQUIRE_MESSAGE(read.ok(), fault_of(""));
  REQUIRE(read->instances.size() == 4);
  const InstanceSpec& prefill = read->instances[1];
  CHECK(prefill.role == Role::prefill);
  CHECK(prefill.ranks() == 4);
  CHECK(prefill.block_tokens == 64);
  CHECK(prefill.kv_cache_bytes == 64u << 20);
  CHECK(prefill.threads == 1);
  const InstanceSpec& decode = read->instances[2];
  CHECK(decode.role == Role::decode);
  CHECK(decode.tensor_parallel == 3);
  CHECK(decode.kv_dtype == KvDtype::f16);
  CHECK(decode.threads == 3);  // what the file leaves out is from the command line
  CHECK(read->instances[3].ranks() == 1);
  CHECK(read->handoff.layer_groups == 3);
  CHECK_FALSE(read->handoff.digests);
}

TEST_CASE("each fault of a cluster file has its line, what was found and what was expected") {
  const std::string decode = "[[decode]]\n";
  const std::string both = "[[prefill]]\n" + decode;
  const struct {
    std::string text;
    const char* fault;
  } cases[] = {
      {"", "c.toml: there is no prefill instance; expected at least one table [[prefill]]"},
      {"[[prefill]]\n", "c.toml: there is no decode instance"},
      {"[prefill]\n" + decode, "c.toml:1: 'prefill' is a table; expected tables, each headed"},
      {"prefill = 3\n" + decode, "c.toml:1: 'prefill' is 3; expected tables"},
      {"prefill = [1]\n" + decode, "c.toml:1: 'prefill' is an array; expected tables"},
      {"kv-layer-groups = 0\n" + both,
       "c.toml:1: 'kv-layer-groups' is 0; expected a whole number from 1 to 1024"},
      {"kv-digests = 1\n" + both, "c.toml:1: 'kv-digests' is 1; expected true or false"},
      {both + "[[decoder]]\n", "c.toml:3: unknown key 'decoder'; did you mean 'decode'?"},
      {both + "tensor_parallel = 2\n",
       "c.toml:3: unknown key 'tensor_parallel'; did you mean 'tensor-parallel'?"},
      {both + "gpu = 2\n", "c.toml:3: unknown key 'gpu'; known are instances, tensor-parallel"},
      {both + "tensor-parallel = \"two\"\n",
       "c.toml:3: 'tensor-parallel' is 'two'; expected a whole number from 1 to 64"},
      {both + "tensor-parallel = 0\n", "c.toml:3: 'tensor-parallel' is 0; expected"},
      {both + "tensor-parallel = 1.5\n", "c.toml:3: 'tensor-parallel' is 1.5; expected"},
      {both + "instances = -1\n", "c.toml:3: 'instances' is -1; expected"},
      {both + "block-size = 24\n", "c.toml:3: 'block-size' is 24; expected 16, 32 or 64 tokens"},
      {both + "kv-dtype = \"fp8\"\n",
       "c.toml:3: 'kv-dtype' is 'fp8'; expected \"bf16\", \"f16\" or \"f32\""},
      {both + "kv-dtype = 16\n", "c.toml:3: 'kv-dtype' is 16; expected"},
      {both + "kv-cache-memory = \"lots\"\n", "c.toml:3: 'kv-cache-memory' is 'lots'; expected a"},
      {both + "threads = [1]\n", "c.toml:3: 'threads' is an array; expected"},
      {both + "tensor-parallel = 16\npipeline-parallel = 16\n",
       "c.toml:2: tensor-parallel x pipeline-parallel is 256 ranks; expected at most 64"},
      {both + "threads = 1\nthreads = 2\n", "c.toml:4: not TOML: "},
      {"[[prefill\n", "c.toml:1: not TOML: "},
  };
  for (const auto& c : cases) {
    CAPTURE(c.text);
    const std::string fault = fault_of(c.text);
    INFO(fault);
    CHECK(fault.find(c.fault) == 0);
  }
}

TEST_CASE("a cluster file that is not there is an error that names it") {
  const auto read = read_cluster_file("/no/such/cluster.toml", defaults());
  REQUIRE_FALSE(read.ok());
  CHECK(read.error().text.find("/no/such/cluster.toml") != std::string::npos);
}
