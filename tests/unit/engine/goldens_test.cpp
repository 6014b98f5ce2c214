// The exact path against the golden data of an independent implementation (tests/oracle): all tiny
// models, their prompts packed into one step.

#include "tests/unit/engine/engine_rig.h"

#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "runtime/base/json.h"

namespace baton {
namespace {

constexpr double kOne = 0.001;  // tolerance of one value, of the rms below
constexpr double kRms = 0.0001;

Json goldens() {
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/oracle/data/tiny_logits.json");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return parse_json(text).value();
}

struct Errors {
  double largest = 0;
  double squares = 0;
  std::size_t count = 0;

  void add(double got, double expected) {
    const double error = std::abs(got - expected);
    largest = error <= largest ? largest : error;  // NaN counts
    squares += error * error;
    ++count;
  }
  double rms() const { return std::sqrt(squares / static_cast<double>(count)); }
};

void compare(const Trace& trace, const Json& golden) {
  Errors errors;
  const Json::Array& prompt = golden.find("prompt_logprobs")->as_array();
  REQUIRE(trace.prompt_logprobs.size() + 1 == prompt.size());
  for (std::size_t i = 1; i < prompt.size(); ++i) {
    errors.add(trace.prompt_logprobs[i - 1], prompt[i].as_number());
  }
  const Json::Array& last = golden.find("last_logits")->as_array();
  REQUIRE(trace.logits.front().size() == last.size());
  for (std::size_t i = 0; i < last.size(); ++i) {
    errors.add(trace.logits.front()[i], last[i].as_number());
  }
  const Json& greedy = *golden.find("greedy");
  const Json::Array& ids = greedy.find("ids")->as_array();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (greedy.find("margins")->as_array()[i].as_number() < 5 * kOne) break;
    REQUIRE(trace.tokens[i] == ids[i].as_integer());
    errors.add(trace.logprobs[i], greedy.find("logprobs")->as_array()[i].as_number());
  }
  CHECK(errors.largest < kOne);
  CHECK(errors.rms() < kRms);
}

}  // namespace

TEST_CASE("the exact path agrees with the reference on every tiny model") {
  const Json data = goldens();
  const Json::Array& prompts = data.find("prompts")->as_array();
  const Json::Array& models = data.find("cases")->as_array();
  CHECK(models.size() == 14);
  for (const Json& model : models) {
    RigOptions options;
    options.model = model.find("name")->as_string();
    options.mode = ActivationMode::f32;
    options.kv_dtype = KvDtype::f32;
    options.threads = 2;
    CAPTURE(options.model);
    EngineRig rig(options);
    std::vector<Sequence> all;
    for (const Json& prompt : prompts) {
      Sequence& s = all.emplace_back();
      s.sampling.top_logprobs = 0;
      s.sampling.prompt_logprobs = 0;
      for (const Json& id : prompt.as_array()) {
        s.prompt.push_back(static_cast<TokenId>(id.as_integer()));
      }
    }
    const std::vector<Trace> traces = rig.run(all, 24);
    for (std::size_t i = 0; i < all.size(); ++i) {
      CAPTURE(i);
      compare(traces[i], model.find("results")->as_array()[i]);
    }
  }
}

}  // namespace baton
