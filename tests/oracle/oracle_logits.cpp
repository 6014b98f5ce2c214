// Writes result lines (JSONL, for check.py) of the suites that need a forward pass, from a
// CpuEngine that packs the prompts of several cases into one step and decodes all cases in one
// batch.
//   oracle_logits MODEL [--activations f32|int8] [--kv-dtype f32|bf16|f16] SUITE...
// SUITE is logits or tiny.
// A tiny model's cases are those whose name, with dashes for spaces, is the name of its file. The
// cases are read from $BATON_ORACLE, by default tests/oracle/data of the source tree.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/json.h"
#include "tests/unit/engine/engine_driver.h"

namespace baton {
namespace {

constexpr int kTop = 20;

[[noreturn]] void fail(const std::string& text) {
  std::fprintf(stderr, "oracle_logits: %s\n", text.c_str());
  std::exit(1);
}

template <class T>
T must(Result<T> result, const std::string& what) {
  if (!result) fail(what + ": " + result.error().text);
  return std::move(result).value();
}

// One case: its prompt, and what the engine made of it.
struct Case {
  std::string name;
  std::vector<TokenId> prompt;
  std::size_t greedy_tokens = 0;
  RowResult prefill;
  std::vector<float> last_logits;
  std::vector<TokenId> ids;
  std::vector<float> logprobs;
  std::vector<BlockId> blocks;
};

Json read_goldens(const std::string& file) {
  const char* folder = std::getenv("BATON_ORACLE");
  const std::string path = std::string(folder != nullptr ? folder : BATON_ORACLE_DATA) + "/" + file;
  std::ifstream in(path, std::ios::binary);
  if (!in) fail(path + " cannot be read");
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  return must(parse_json(text), path);
}

std::vector<TokenId> ids_of(const Json& array) {
  std::vector<TokenId> out;
  for (const Json& id : array.as_array()) out.push_back(static_cast<TokenId>(id.as_integer()));
  return out;
}

std::size_t greedy_size(const Json& result) {
  return result.find("greedy")->find("ids")->as_array().size();
}

std::vector<Case> real_cases() {
  std::vector<Case> out;
  const Json goldens = read_goldens("logits_cases.json");
  for (const Json& golden : goldens.find("cases")->as_array()) {
    Case& c = out.emplace_back();
    c.name = golden.find("name")->as_string();
    c.prompt = ids_of(*golden.find("ids"));
    c.greedy_tokens = greedy_size(golden);
  }
  return out;
}

std::vector<Case> tiny_cases(const std::string& model_path) {
  const std::string stem = std::filesystem::path(model_path).stem().string();
  const Json goldens = read_goldens("tiny_logits.json");
  for (const Json& model : goldens.find("cases")->as_array()) {
    const std::string name = model.find("name")->as_string();
    std::string file = name;
    std::replace(file.begin(), file.end(), ' ', '-');
    if (file != stem) continue;
    std::vector<Case> out;
    const Json::Array& prompts = goldens.find("prompts")->as_array();
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      Case& c = out.emplace_back();
      c.name = name + "/" + std::to_string(i);
      c.prompt = ids_of(prompts[i]);
      c.greedy_tokens = greedy_size(model.find("results")->as_array()[i]);
    }
    return out;
  }
  fail("no tiny model of the goldens is named '" + stem + "' (the name of the model's file)");
}

BatchRow row_of(const Case& c, uint64_t key) {
  BatchRow row;
  row.key = key;
  row.blocks = c.blocks;
  row.sampling.top_logprobs = kTop;
  return row;
}

// Prompts share a step as long as they fit.
void prefill(EngineDriver& driver, std::vector<Case>& cases) {
  std::vector<BatchRow> rows;
  std::size_t tokens = 0;
  const auto flush = [&] {
    if (rows.empty()) return;
    for (RowResult& result : driver.step(std::move(rows)).rows) {
      if (result.numerical_error) fail("numerical error in " + cases[result.key].name);
      cases[result.key].prefill = std::move(result);
    }
    rows.clear();
    tokens = 0;
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (tokens + cases[i].prompt.size() > driver.engine().step_tokens_max()) flush();
    cases[i].blocks = driver.take_blocks(cases[i].prompt.size() + cases[i].greedy_tokens);
    rows.push_back(row_of(cases[i], i));
    rows.back().tokens = cases[i].prompt;
    rows.back().sampling.prompt_logprobs = 1;
    tokens += cases[i].prompt.size();
  }
  flush();
}

void decode(EngineDriver& driver, std::vector<Case>& cases) {
  for (Case& c : cases) {
    c.ids = {c.prefill.samples.at(0).token};
    c.logprobs = {c.prefill.samples.at(0).logprob};
  }
  for (;;) {
    std::vector<BatchRow> rows;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      Case& c = cases[i];
      if (c.ids.size() >= c.greedy_tokens) continue;
      rows.push_back(row_of(c, i));
      rows.back().tokens = {c.ids.back()};
      rows.back().position = static_cast<uint32_t>(c.prompt.size() + c.ids.size() - 1);
    }
    if (rows.empty()) return;
    for (const RowResult& result : driver.step(std::move(rows)).rows) {
      if (result.numerical_error) fail("numerical error in " + cases[result.key].name);
      cases[result.key].ids.push_back(result.samples.at(0).token);
      cases[result.key].logprobs.push_back(result.samples.at(0).logprob);
    }
  }
}

template <class T>
Json numbers(const std::vector<T>& values) {
  Json out = Json::array();
  for (const T value : values) {
    if constexpr (std::is_same_v<T, float>) {
      out.push_back(static_cast<double>(value));
    } else {
      out.push_back(std::int64_t{value});
    }
  }
  return out;
}

void print(const std::string& suite, const Case& c) {
  Json prompt_logprobs = Json::array();
  prompt_logprobs.push_back(nullptr);
  for (const float x : c.prefill.prompt_logprobs) prompt_logprobs.push_back(double{x});
  Json top1 = Json::array();
  for (const auto& best : c.prefill.prompt_top) top1.push_back(std::int64_t{best.front().id});
  Json top = Json::array();
  for (const TokenLogprob& entry : c.prefill.samples.at(0).top) {
    Json pair = Json::array();
    pair.push_back(std::int64_t{entry.id});
    pair.push_back(double{entry.logprob});
    top.push_back(std::move(pair));
  }
  Json greedy = Json::object();
  greedy.set("ids", numbers(c.ids));
  greedy.set("logprobs", numbers(c.logprobs));
  Json line = Json::object();
  line.set("suite", suite);
  line.set("name", c.name);
  line.set("prompt_logprobs", std::move(prompt_logprobs));
  line.set("prompt_top1", std::move(top1));
  if (suite == "tiny") {
    line.set("last_logits", numbers(c.last_logits));
  } else {
    line.set("top", std::move(top));
  }
  line.set("greedy", std::move(greedy));
  std::puts(write_json(line).c_str());
}

struct Arguments {
  std::string model;
  ActivationMode mode = ActivationMode::int8;
  KvDtype kv_dtype = KvDtype::bf16;
  std::vector<std::string> suites;
};

Arguments parse(int argc, char** argv) {
  const std::map<std::string, ActivationMode> modes = {{"f32", ActivationMode::f32},
                                                       {"int8", ActivationMode::int8}};
  const std::map<std::string, KvDtype> dtypes = {
      {"f32", KvDtype::f32}, {"bf16", KvDtype::bf16}, {"f16", KvDtype::f16}};
  Arguments out;
  std::string kv_dtype;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const std::string value = i + 1 < argc ? argv[i + 1] : "";
    if (argument == "--activations") {
      if (!modes.contains(value)) fail("--activations takes f32 or int8");
      out.mode = modes.at(value);
      ++i;
    } else if (argument == "--kv-dtype") {
      if (!dtypes.contains(value)) fail("--kv-dtype takes f32, bf16 or f16");
      kv_dtype = value;
      ++i;
    } else if (out.model.empty()) {
      out.model = argument;
    } else {
      out.suites.push_back(argument);
    }
  }
  if (out.suites.empty()) {
    fail("usage: oracle_logits MODEL [--activations f32|int8] [--kv-dtype f32|bf16|f16] SUITE...");
  }
  out.kv_dtype = kv_dtype.empty() ? default_kv_dtype(out.mode) : dtypes.at(kv_dtype);
  return out;
}

void run(const Arguments& arguments, const std::string& suite) {
  const std::string& path = arguments.model;
  if (suite != "logits" && suite != "tiny") {
    fail("the suite is '" + suite + "'; expected logits or tiny");
  }
  std::vector<Case> cases = suite == "tiny" ? tiny_cases(path) : real_cases();
  TeamOptions team;
  team.threads = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto compute = std::make_shared<Compute>(team);
  const ModelFile file = must(ModelFile::open(path), "the model");
  const auto weights = must(LlamaWeights::load(file, *compute), "the model");
  CpuEngineOptions options;
  options.activations = arguments.mode;
  options.kv_dtype = arguments.kv_dtype;
  std::mutex mutex;
  options.on_logits = [&](uint64_t key, std::span<const float> logits) {
    const std::lock_guard lock(mutex);
    std::vector<float>& kept = cases[key].last_logits;
    if (kept.empty()) kept.assign(logits.begin(), logits.end());  // those after the prompt
  };
  const auto driver = must(EngineDriver::create(weights, compute, options), "the engine");
  prefill(*driver, cases);
  decode(*driver, cases);
  for (const Case& c : cases) print(suite, c);
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  const baton::Arguments arguments = baton::parse(argc, argv);
  for (const std::string& suite : arguments.suites) baton::run(arguments, suite);
  return 0;
}
