#include "actors/gateway/validate.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/base/utf8.h"

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SubmitRules rules() {
  SubmitRules rules;
  rules.context_max = 100;
  rules.vocabulary = 1000;
  return rules;
}

Submit good() {
  Submit submit;
  submit.ids = {1, 2, 3};
  submit.has_max_tokens = true;
  submit.max_tokens = 10;
  return submit;
}

struct Bad {
  const char* what;                     // for the reader
  std::function<void(Submit&)> change;  // of a good one
  const char* field;                    // that the sentence begins with
  const char* got;                      // that it names
  ErrorCode code = ErrorCode::invalid_argument;
};

const std::vector<Bad>& bad_table() {
  static const std::vector<Bad> table = {
      {"row 15", [](Submit& s) { s.sampling.temperature = kInf; }, "temperature", "inf"},
      {"row 15", [](Submit& s) { s.sampling.temperature = kNan; }, "temperature", "nan"},
      {"row 15", [](Submit& s) { s.sampling.temperature = -0.1f; }, "temperature", "-0.1"},
      {"row 15", [](Submit& s) { s.sampling.temperature = 2.5f; }, "temperature", "2.5"},
      {"row 16", [](Submit& s) { s.n = 0; }, "n is", "0"},
      {"row 16", [](Submit& s) { s.n = 129; }, "n is", "129"},
      {"row 17", [](Submit& s) { s.max_tokens = 4'000'000'000u; }, "max_tokens", "4000000000"},
      {"min over max", [](Submit& s) { s.min_tokens = 11; }, "min_tokens", "11"},
      {"row 18", [](Submit& s) { s.ids.assign(100, 1); }, "the prompt has 100 tokens", "100",
       ErrorCode::context_too_long},
      {"sum too long", [](Submit& s) { s.ids.assign(95, 1); }, "the prompt has 95 tokens",
       "together 105", ErrorCode::context_too_long},
      {"row 19", [](Submit& s) { s.ids[1] = 1000; }, "ids[1]", "1000"},
      {"row 19", [](Submit& s) { s.ids[2] = -1; }, "ids[2]", "-1"},
      {"row 20",
       [](Submit& s) {
         s.stop = {"a", ""};
       },
       "stop[1]", "empty"},
      {"row 20",
       [](Submit& s) {
         s.stop = {"a", "b", "c", "d", "e"};
       },
       "stop has", "5"},
      {"row 20", [](Submit& s) { s.stop = {std::string(1 << 20, 'a')}; }, "stop[0]", "1048576"},
      {"stop bytes", [](Submit& s) { s.stop = {"\xFF"}; }, "stop[0]", "\\xff"},
      {"T84, row 21",
       [](Submit& s) {
         s.sampling.logit_bias = {{1, 0}, {1000, 1}};
       },
       "logit_bias[1] id", "1000"},
      {"T84",
       [](Submit& s) {
         s.sampling.logit_bias = {{-1, 1}};
       },
       "logit_bias[0] id", "-1"},
      {"row 21",
       [](Submit& s) {
         s.sampling.logit_bias = {{1, kNan}};
       },
       "logit_bias[0] value", "nan"},
      {"bias",
       [](Submit& s) {
         s.sampling.logit_bias = {{1, 100.5f}};
       },
       "logit_bias[0] value", "100.5"},
      {"bias twice",
       [](Submit& s) {
         s.sampling.logit_bias = {{1, 1}, {1, 2}};
       },
       "logit_bias[1] id", "again"},
      {"row 21",
       [](Submit& s) {
         for (int i = 0; i < 100'000; ++i) s.sampling.logit_bias.emplace_back(i, 1.0f);
       },
       "logit_bias has", "100000"},
      {"row 22", [](Submit& s) { s.sampling.top_logprobs = 21; }, "top_logprobs", "21"},
      {"row 22", [](Submit& s) { s.sampling.top_logprobs = -2; }, "top_logprobs", "-2"},
      {"row 22", [](Submit& s) { s.sampling.prompt_logprobs = 21; }, "prompt_logprobs", "21"},
      {"top_p", [](Submit& s) { s.sampling.top_p = 0; }, "top_p", "0"},
      {"top_p", [](Submit& s) { s.sampling.top_p = 1.5f; }, "top_p", "1.5"},
      {"top_p", [](Submit& s) { s.sampling.top_p = kNan; }, "top_p", "nan"},
      {"min_p", [](Submit& s) { s.sampling.min_p = -0.5f; }, "min_p", "-0.5"},
      {"min_p", [](Submit& s) { s.sampling.min_p = kInf; }, "min_p", "inf"},
      {"top_k", [](Submit& s) { s.sampling.top_k = -2; }, "top_k", "-2"},
      {"penalty", [](Submit& s) { s.sampling.repetition_penalty = 0; }, "repetition_penalty", "0"},
      {"penalty", [](Submit& s) { s.sampling.repetition_penalty = kInf; }, "repetition_penalty",
       "inf"},
      {"penalty", [](Submit& s) { s.sampling.presence_penalty = 2.5f; }, "presence_penalty", "2.5"},
      {"penalty", [](Submit& s) { s.sampling.frequency_penalty = kNan; }, "frequency_penalty",
       "nan"},
      {"stop ids",
       [](Submit& s) {
         s.stop_ids = {5, 1000};
       },
       "stop_ids[1]", "1000"},
      {"stop ids", [](Submit& s) { s.stop_ids.assign(129, 1); }, "stop_ids has", "129"},
      {"priority", [](Submit& s) { s.priority = INT32_MIN; }, "priority", "-2147483648"},
      {"priority", [](Submit& s) { s.priority = 1001; }, "priority", "1001"},
      {"deadline", [](Submit& s) { s.deadline_ms = -1; }, "deadline_ms", "-1"},
      {"deadline", [](Submit& s) { s.deadline_ms = INT64_MAX; }, "deadline_ms",
       "9223372036854775807"},
      {"T83", [](Submit& s) { s.ids.clear(); }, "the prompt is empty", "ids, text or messages"},
      {"two prompts", [](Submit& s) { s.text = "a"; }, "two of ids", "exactly one"},
      {"two prompts",
       [](Submit& s) {
         s.text = "a";
         s.messages = {{"user", "b"}};
       },
       "all three of ids", "exactly one"},
      {"row 24",
       [](Submit& s) {
         s.ids.clear();
         s.messages = {{"user", "a"}, {"wizard", "b"}};
       },
       "messages[1].role", "'wizard'"},
      {"messages",
       [](Submit& s) {
         s.ids.clear();
         s.messages.assign(4097, {"user", "a"});
       },
       "messages has", "4097"},
      {"text",
       [](Submit& s) {
         s.ids.clear();
         s.text.assign((10u << 20) + 1, 'a');
       },
       "text has", "10485761"},
      {"contents",
       [](Submit& s) {
         s.ids.clear();
         s.messages.assign(11, {"user", std::string(1 << 20, 'a')});
       },
       "messages has", "11534336"},
      {"tenant", [](Submit& s) { s.tenant.assign(257, 'a'); }, "tenant has", "257"},
      {"tenant", [](Submit& s) { s.tenant = "a\xC3"; }, "tenant is", "\\xc3"},
      {"key", [](Submit& s) { s.idempotency_key.assign(1000, 'a'); }, "idempotency_key has",
       "1000"},
  };
  return table;
}

}  // namespace

TEST_CASE("every bad field of a request is refused with a sentence that names it and what it was") {
  REQUIRE_FALSE(check_submit(good(), rules()).has_value());
  for (const Bad& bad : bad_table()) {
    CAPTURE(std::string(bad.what));
    CAPTURE(std::string(bad.field));
    Submit submit = good();
    bad.change(submit);
    const std::optional<Refusal> refusal = check_submit(submit, rules());
    REQUIRE(refusal.has_value());
    CAPTURE(refusal->text);
    CHECK(refusal->code == bad.code);
    CHECK(refusal->text.starts_with(bad.field));
    CHECK(refusal->text.find(bad.got) != std::string::npos);
    CHECK(refusal->text.size() < 500);
    CHECK(refusal->retry_after_ms == 0);
  }
}

TEST_CASE("the edges of every range are accepted") {
  const std::vector<std::function<void(Submit&)>> changes = {
      [](Submit& s) { s.sampling.temperature = 0; },
      [](Submit& s) { s.sampling.temperature = 2; },
      [](Submit& s) { s.sampling.top_p = 1; },
      [](Submit& s) { s.sampling.top_p = 1e-6f; },
      [](Submit& s) { s.sampling.min_p = 0; },
      [](Submit& s) { s.sampling.min_p = 1; },
      [](Submit& s) { s.sampling.top_k = -1; },
      [](Submit& s) { s.sampling.top_k = INT32_MAX; },
      [](Submit& s) { s.sampling.repetition_penalty = 0.1f; },
      [](Submit& s) { s.sampling.presence_penalty = -2; },
      [](Submit& s) { s.sampling.frequency_penalty = 2; },
      [](Submit& s) { s.sampling.top_logprobs = 20; },
      [](Submit& s) { s.sampling.prompt_logprobs = 0; },
      [](Submit& s) {
        s.sampling.logit_bias = {{0, -100}, {999, 100}};
      },
      [](Submit& s) {
        s.ids = {0, 999};
      },
      [](Submit& s) { s.ids.assign(90, 1); },
      [](Submit& s) {
        s.ids.assign(99, 1);
        s.has_max_tokens = false;
      },
      [](Submit& s) {
        s.ids.assign(100, 1);
        s.max_tokens = 0;
      },
      [](Submit& s) { s.min_tokens = 10; },
      [](Submit& s) { s.max_tokens = 97; },
      [](Submit& s) {
        s.stop = {"a", "b", "c", std::string(4096, 'd')};
      },
      [](Submit& s) { s.stop_ids.assign(128, 999); },
      [](Submit& s) { s.deadline_ms = 1; },
      [](Submit& s) { s.priority = -1000; },
      [](Submit& s) { s.idempotency_key.assign(256, 'k'); },
      [](Submit& s) {
        s.ids.clear();
        s.messages = {
            {"system", ""}, {"developer", "a"}, {"user", "b"}, {"assistant", "c"}, {"tool", "d"}};
      },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    CAPTURE(i);
    Submit submit = good();
    changes[i](submit);
    const std::optional<Refusal> refusal = check_submit(submit, rules());
    const std::string text = refusal ? refusal->text : "";
    CHECK(text == "");
  }
}

TEST_CASE("S3, T67, T68: a prompt that is one token too long is refused with both numbers") {
  Submit submit = good();
  submit.has_max_tokens = false;
  const std::vector<TokenId> fits(99, 1), too_long(100, 1);
  CHECK_FALSE(check_prompt(fits, submit, rules()).has_value());
  const std::optional<Refusal> refusal = check_prompt(too_long, submit, rules());
  REQUIRE(refusal.has_value());
  CHECK(refusal->code == ErrorCode::context_too_long);
  CHECK(refusal->text.find("100 tokens") != std::string::npos);
  CHECK(refusal->text.find("100 positions") != std::string::npos);
}

TEST_CASE("T85: without max_tokens a request may use the rest of the context") {
  Submit submit = good();
  CHECK(max_tokens_of(submit, 3, rules()) == 10);
  submit.has_max_tokens = false;
  CHECK(max_tokens_of(submit, 3, rules()) == 97);
}

TEST_CASE("T86: max_tokens 0 scores the prompt") {
  Submit submit = good();
  submit.max_tokens = 0;
  CHECK_FALSE(check_submit(submit, rules()).has_value());
  CHECK(sampling_of(submit).prompt_logprobs == 0);
  submit.sampling.prompt_logprobs = 5;
  CHECK(sampling_of(submit).prompt_logprobs == 5);
  submit.sampling.top_k = -1;
  CHECK(sampling_of(submit).top_k == 0);
}

TEST_CASE("text of others in a sentence is bounded, printable and well-formed") {
  CHECK(quoted_echo("abc") == "'abc'");
  CHECK(quoted_echo("a\r\nb\x7F") == "'a\\x0d\\x0ab\\x7f'");
  CHECK(quoted_echo("\xC3\xA9\xC3") == "'\xC3\xA9\\xc3'");
  const std::string long_text = std::string(199, 'a') + "\xC3\xA9 and so on";
  const std::string echo = quoted_echo(long_text);
  CHECK(echo == "'" + std::string(199, 'a') + "' (211 bytes in all)");
  for (int size = 0; size < 1000; size += 7) {
    CHECK(quoted_echo(std::string(size, '\xF0')).size() < 850);
    CHECK(is_utf8(quoted_echo(std::string(size, '\xF0'))));
  }
}
