#include "launch/cli/batch_file.h"
#include "launch/cli/command.h"
#include "launch/serve/engines.h"
#include "launch/serve/serve_options.h"
#include "launch/serve/topology.h"
#include "launch/serve/wire_up.h"
// doctest last: it has a CHECK of its own.
#include <doctest/doctest.h>

using namespace baton;

namespace {

ServeOptions sides(int64_t prefill_ranks, int64_t decode_ranks, uint32_t prefill_tp = 1,
                   uint32_t decode_tp = 1) {
  ServeOptions options;
  options.prefill_ranks = prefill_ranks;
  options.decode_ranks = decode_ranks;
  options.defaults.prefill.tensor_parallel = prefill_tp;
  options.defaults.decode.tensor_parallel = decode_tp;
  return options;
}

// "prefill 1-2, decode 3"
std::string text_of(const Result<Topology>& topology) {
  if (!topology.ok()) return topology.error().text;
  std::string text;
  for (const InstanceSpec& instance : topology->instances) {
    text += (text.empty() ? "" : ", ") + std::string(role_name(instance.role)) + " " +
            instance.ranks_text();
  }
  return text;
}

}  // namespace

TEST_CASE("ranks are divided into control, prefill and decode, or refused with both numbers") {
  const auto three = divide_ranks(3, sides(0, 0));
  REQUIRE(three.ok());
  CHECK(three->role_text(0) == "control");
  CHECK(three->role_text(1) == "prefill");
  CHECK(three->role_text(2) == "decode");
  CHECK(three->led_by(0).empty());
  CHECK(three->instance_of(0) == nullptr);
  const auto alone = divide_ranks(1, sides(0, 0));
  REQUIRE(alone.ok());
  CHECK(alone->alone());
  REQUIRE(alone->led_by(0).size() == 2);
  CHECK(alone->led_by(0)[0].role == Role::prefill);
  CHECK(alone->led_by(0)[1].role == Role::decode);
  const auto more_decode = divide_ranks(6, sides(1, 0));
  REQUIRE(more_decode.ok());
  CHECK(more_decode->count(Role::prefill) == 1);
  CHECK(more_decode->count(Role::decode) == 4);
  CHECK(divide_ranks(5, sides(0, 3))->count(Role::prefill) == 1);
  CHECK(divide_ranks(6, sides(0, 0))->count(Role::prefill) == 2);
  for (const auto& [ranks, prefill, decode] :
       {std::tuple{2u, 0, 0}, {3u, 2, 1}, {4u, 1, 1}, {4u, 3, 0}, {5u, 5, 0}}) {
    const auto refused = divide_ranks(ranks, sides(prefill, decode));
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.error().text.find(std::to_string(ranks)) != std::string::npos);
  }
}

TEST_CASE("instances of several ranks take neighbouring ranks, and none may be left over") {
  CHECK(text_of(divide_ranks(5, sides(0, 0, 2, 2))) == "prefill ranks 1-2, decode ranks 3-4");
  CHECK(text_of(divide_ranks(5, sides(0, 0, 1, 3))) == "prefill rank 1, decode ranks 2-4");
  CHECK(text_of(divide_ranks(8, sides(3, 0, 3, 2))) ==
        "prefill ranks 1-3, decode ranks 4-5, decode ranks 6-7");
  const auto topology = divide_ranks(5, sides(0, 0, 2, 2));
  CHECK(topology->led_by(3).size() == 1);
  CHECK(topology->led_by(4).empty());
  CHECK(topology->role_text(4) == "decode part 2 of 2");
  CHECK(topology->instance_of(4)->first_rank == 3);
  const std::string left_over = text_of(divide_ranks(4, sides(0, 0, 2, 2)));
  CHECK(left_over.find("mpirun started 4") != std::string::npos);
  CHECK(left_over.find("2 ranks") != std::string::npos);
  CHECK(text_of(divide_ranks(7, sides(3, 0, 2, 1))).find("--prefill-ranks 3") != std::string::npos);
  CHECK(text_of(divide_ranks(1, sides(0, 0, 2, 1))).find("mpirun -np 4") != std::string::npos);

  ServeOptions file;
  file.instances = {file.defaults.prefill, file.defaults.decode, file.defaults.decode};
  file.instances[1].tensor_parallel = 2;
  file.instances[1].pipeline_parallel = 2;
  CHECK(text_of(divide_ranks(7, file)) == "prefill rank 1, decode ranks 2-5, decode rank 6");
  const std::string wrong = text_of(divide_ranks(6, file));
  CHECK(wrong.find("mpirun -np 7") != std::string::npos);
  CHECK(wrong.find("mpirun started 6") != std::string::npos);
}

TEST_CASE("an instance that would span hosts is refused with a sentence") {
  const auto topology = divide_ranks(5, sides(0, 0, 2, 2));
  CHECK(check_hosts(*topology, {"a", "a", "a", "b", "b"}).ok());
  const auto spans = check_hosts(*topology, {"a", "a", "a", "a", "b"});
  REQUIRE_FALSE(spans.ok());
  CHECK(spans.error().text.find("decode instance of ranks 3-4 would span the hosts a and b") !=
        std::string::npos);
}

TEST_CASE("threads are pinned only where each has a core") {
  CHECK(plan_cores({0, 0}, 1, {0, 1}).text == "1 thread on core 1");
  CHECK(plan_cores({0}, 0, {0, 1}).text == "2 threads on cores 0-1");
  CHECK_FALSE(plan_cores({2, 1}, 0, {0, 1}).pin);
  CHECK(plan_cores({2, 1}, 0, {0, 1}).text == "2 threads, cores 0-1 shared");
  const CorePlan second = plan_cores({3, 3}, 1, {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(second.pin);
  CHECK(second.first_core == 3);
  CHECK(second.text == "3 threads on cores 3-5");
  CHECK(plan_cores({4, 4}, 1, {0, 1, 2, 3, 4, 5, 6, 7}).pin);
  CHECK_FALSE(plan_cores({4, 4}, 1, {0, 1, 2, 3, 4, 5, 6}).pin);
  CHECK(plan_cores({1, 4, 2}, 2, {0, 1, 2, 3, 4, 5, 6, 7}).text == "2 threads on cores 5-6");
  CHECK(cores_text({0, 1, 2, 5, 7, 8}) == "0-2,5,7-8");
}

TEST_CASE("the terms of a hand-off come from the command line, within bounds") {
  const auto parse = [](std::vector<std::string> words, ServeOptions& options) {
    words.insert(words.begin(), {"baton", "serve", "--model", "m.gguf"});
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    ServeFlags flags;
    return flags.parse(static_cast<int>(argv.size()), argv.data(), options);
  };
  ServeOptions plain;
  REQUIRE_FALSE(parse({}, plain).has_value());
  CHECK(plain.limits.kv_layer_groups == 1);
  CHECK(plain.limits.kv_digests);
  ServeOptions asked;
  REQUIRE_FALSE(parse({"--kv-layer-groups", "3", "--no-kv-digests"}, asked).has_value());
  CHECK(asked.limits.kv_layer_groups == 3);
  CHECK_FALSE(asked.limits.kv_digests);
  for (const char* wrong : {"0", "-1", "1025"}) {
    CAPTURE(wrong);
    ServeOptions refused;
    CHECK(parse({"--kv-layer-groups", wrong}, refused) == cli::kUsage);
  }
}

TEST_CASE("sizes are read with binary units, and nothing else is") {
  CHECK(parse_bytes("1048576") == 1u << 20);
  CHECK(parse_bytes("512MiB") == 512u << 20);
  CHECK(parse_bytes("512mb") == 512u << 20);
  CHECK(parse_bytes("1.5G") == 3u << 29);
  for (const char* bad : {"", "x", "12Q", "-1", "1MM", "auto"}) CHECK(parse_bytes(bad) == 0);
}

TEST_CASE("ranks that cannot form a cluster hear which two differ and how") {
  RankCard a;
  a.version = "0.1.0 (aaa)";
  a.fingerprint = "f1";
  a.host = "h1";
  RankCard b = a;
  b.rank = 1;
  const auto back = unpack_card(pack_card(b));
  REQUIRE(back.ok());
  CHECK(back->rank == 1);
  CHECK(back->fingerprint == "f1");
  CHECK_FALSE(unpack_card("garbage").ok());
  CHECK(check_cards({a, b}).ok());

  RankCard other_model = b;
  other_model.fingerprint = "f2";
  const auto models = check_cards({a, other_model});
  REQUIRE_FALSE(models.ok());
  CHECK(models.error().text.find("f1") != std::string::npos);
  CHECK(models.error().text.find("f2") != std::string::npos);

  RankCard other_build = b;
  other_build.version = "0.1.0 (bbb)";
  CHECK(check_cards({a, other_build}).error().text.find("bbb") != std::string::npos);

  RankCard broken = b;
  broken.error_code = static_cast<uint16_t>(ErrorCode::bad_model);
  broken.error_text = "model.gguf: bad magic";
  const auto failed = check_cards({a, broken});
  REQUIRE_FALSE(failed.ok());
  CHECK(failed.error().code == ErrorCode::bad_model);
  CHECK(failed.error().text == "rank 1 on h1: model.gguf: bad magic");
}

TEST_CASE("engine ranks of one host share its cores in rank order") {
  const std::vector<std::string> hosts = {"h1", "h1", "h1", "h2", "h2"};
  CHECK(share_of_host(hosts, 1).index == 0);
  CHECK(share_of_host(hosts, 2).index == 1);
  CHECK(share_of_host(hosts, 2).ranks == std::vector<uint32_t>{1, 2});
  CHECK(share_of_host(hosts, 4).index == 1);
  CHECK(share_of_host(hosts, 4).ranks == std::vector<uint32_t>{3, 4});
}

TEST_CASE("the nearest word is found, and nothing far away") {
  const std::vector<std::string> words = {"--max-num-seqs", "--threads", "--seed"};
  CHECK(cli::nearest("--max-num-seq", words) == "--max-num-seqs");
  CHECK(cli::nearest("--thread", words) == "--threads");
  CHECK(cli::nearest("--sede", words) == "--seed");
  CHECK(cli::nearest("--entirely-else", words).empty());
}

TEST_CASE("a batch file is read line by line, and a fault names its line") {
  client::Request defaults;
  defaults.max_tokens = 7;
  const auto lines = cli::read_batch(
      "{\"id\":\"a\",\"prompt\":\"x\"}\n\n"
      "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"max_tokens\":3,\"seed\":1,"
      "\"stop\":\"q\",\"logit_bias\":{\"5\":-1.5}}\n"
      "{\"id\":9,\"prompt_ids\":[1,2]}",
      defaults);
  REQUIRE(lines.ok());
  REQUIRE(lines->size() == 3);
  CHECK((*lines)[0].id == "a");
  CHECK((*lines)[0].request.max_tokens == 7u);
  CHECK((*lines)[1].id == "3");
  CHECK((*lines)[1].request.max_tokens == 3u);
  CHECK((*lines)[1].request.messages[0].content == "hi");
  CHECK((*lines)[1].request.stop == std::vector<std::string>{"q"});
  CHECK((*lines)[1].request.logit_bias[0].second == -1.5f);
  CHECK((*lines)[2].id == "9");
  const struct {
    const char* text;
    const char* part;
  } bad[] = {
      {"{\"prompt\":\"x\"}\n{\"prompt\":1}", "line 2: 'prompt' must be a string, got number"},
      {"{\"prompt\":\"x\",\"promt\":\"y\"}", "unknown member 'promt'"},
      {"{}", "one of messages, prompt, prompt_ids, got 0"},
      {"{\"prompt\":\"x\",\"prompt_ids\":[1]}", "got 2"},
      {"{\"id\":\"a\",\"prompt\":\"x\"}\n{\"id\":\"a\",\"prompt\":\"y\"}", "ids must be unique"},
      {"{\"prompt\":\"x\"", "line 1: "},
      {"[1]", "expected an object, got array"},
      {"{\"prompt\":\"x\",\"max_tokens\":-1}", "'max_tokens' must be an integer in range"},
      {"{\"prompt_ids\":[1.5]}", "token ids"},
  };
  for (const auto& c : bad) {
    const auto refused = cli::read_batch(c.text, defaults);
    REQUIRE_FALSE(refused.ok());
    INFO(refused.error().text);
    CHECK(refused.error().text.find(c.part) != std::string::npos);
  }
}
