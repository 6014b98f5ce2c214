#include "runtime/model/detokenizer.h"

#include <doctest/doctest.h>

#include "runtime/base/utf8.h"
#include "tests/unit/model/gguf_builder.h"
#include "tests/unit/model/golden_files.h"
#include "tests/unit/model/oracle_models.h"

namespace baton {
namespace {

using test::Vocabulary;

Tokenizer byte_tokenizer() {
  const ModelFile file =
      test::open_bytes(test::tokenizer_file("smollm", Vocabulary().merge("a", "b"))).value();
  return Tokenizer::load(file).value();
}

TokenId byte_id(unsigned char byte) {
  return 3 + byte;
}

// The text after each byte, and at the end behind '|'.
std::string streamed(const Tokenizer& tokenizer, std::string_view bytes) {
  Detokenizer detokenizer(tokenizer, true);
  std::string out;
  for (const char byte : bytes) {
    const std::string step = detokenizer.push(byte_id(static_cast<unsigned char>(byte)));
    CHECK(is_utf8(step));
    out += step + "/";
  }
  return out + "|" + detokenizer.finish();
}

}  // namespace

TEST_CASE("a character comes out when it is whole, ill-formed bytes as soon as that is certain") {
  const Tokenizer tokenizer = byte_tokenizer();
  CHECK(streamed(tokenizer, "aé") == "a//é/|");
  CHECK(streamed(tokenizer, "😀") == "///😀/|");
  CHECK(streamed(tokenizer, "\xE2\x82") == "//|\uFFFD");
  CHECK(streamed(tokenizer, "\xE2(") == "/\uFFFD(/|");
  CHECK(streamed(tokenizer, "\x80\xFF") == "\uFFFD/\uFFFD/|");
  CHECK(streamed(tokenizer, "\xED\xA0\x80") == "/\uFFFD\uFFFD/\uFFFD/|");
  CHECK(streamed(tokenizer, "\xC3\xC3\xA9") == "/\uFFFD/é/|");
  CHECK(streamed(tokenizer, "\xF0\x9F\x98\xF0\x9F\x98\x80") == "///\uFFFD///😀/|");
  CHECK(streamed(tokenizer, "\xF4\x90") == "/\uFFFD\uFFFD/|");
  CHECK(streamed(tokenizer, "\xC0\x80") == "\uFFFD/\uFFFD/|");
}

TEST_CASE("control tokens do not break a character, and show their name when not skipped") {
  const Tokenizer tokenizer = byte_tokenizer();
  Detokenizer skipping(tokenizer, true);
  CHECK(skipping.push(byte_id(0xC3)) == "");
  CHECK(skipping.push(1) == "");
  CHECK(skipping.push(byte_id(0xA9)) == "é");
  Detokenizer showing(tokenizer, false);
  CHECK(showing.push(byte_id(0xC3)) == "");
  CHECK(showing.push(1) == "\uFFFD<|im_start|>");
  CHECK(showing.finish() == "");
}

TEST_CASE("a copy goes on where the original stood, and finish starts anew") {
  const Tokenizer tokenizer = byte_tokenizer();
  Detokenizer detokenizer(tokenizer, true);
  detokenizer.push(byte_id(0xE6));
  detokenizer.push(byte_id(0x97));
  Detokenizer copy = detokenizer;
  CHECK(detokenizer.push(byte_id(0xA5)) == "日");
  CHECK(copy.push(byte_id(0xA5)) == "日");
  copy.push(byte_id(0xC3));
  CHECK(copy.finish() == "\uFFFD");
  CHECK(copy.push(byte_id('x')) == "x");
}

TEST_CASE("streams of ids come out as the goldens say") {
  const std::optional<std::string> path = test::real_model();
  if (!path) return;
  const Tokenizer tokenizer = Tokenizer::load(ModelFile::open(*path).value()).value();
  const Json data = test::read_golden("tests/oracle/data/detokenize_cases.json");
  for (const Json& test_case : data.find("cases")->as_array()) {
    CAPTURE(test_case.find("name")->as_string());
    const bool skip = test_case.find("skip_special")->as_bool();
    Detokenizer detokenizer(tokenizer, skip);
    Json steps = Json::array();
    std::vector<TokenId> ids;
    for (const Json& id : test_case.find("ids")->as_array()) {
      ids.push_back(static_cast<TokenId>(id.as_integer()));
      steps.push_back(detokenizer.push(ids.back()));
    }
    CHECK(write_json(steps) == write_json(*test_case.find("steps")));
    CHECK(detokenizer.finish() == test_case.find("end")->as_string());
    CHECK(tokenizer.decode(ids, skip) == test_case.find("text")->as_string());
  }
}

}  // namespace baton
