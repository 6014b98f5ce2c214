#include "runtime/model/pre_tokenizer.h"

#include <doctest/doctest.h>

#include "tests/unit/model/golden_files.h"

namespace baton {
namespace {

Json split(const PreTokenizer& pre, std::string_view text) {
  Json pieces = Json::array();
  const Result<void> done =
      pre.split(text, [&](std::string_view piece) { pieces.push_back(piece); });
  CHECK(done.ok());
  return pieces;
}

}  // namespace

TEST_CASE("texts are cut as the tokenizers of the model families cut them") {
  const Json data = test::read_golden("tests/unit/model/data/pre_tokenizer_goldens.json");
  for (const std::string kind : {"gpt-2", "smollm", "llama-bpe", "qwen2"}) {
    const PreTokenizer pre = PreTokenizer::named(kind).value();
    for (const Json& test_case : data.find("cases")->as_array()) {
      CAPTURE(kind);
      CAPTURE(write_json(*test_case.find("text")));
      CHECK(write_json(split(pre, test_case.find("text")->as_string())) ==
            write_json(*test_case.find(kind)));
    }
  }
}

TEST_CASE("an unknown pre-tokenizer is refused, never guessed") {
  for (const char* name : {"", "default", "tekken", "smollm2", "llama3", "qwen2 "}) {
    const Result<PreTokenizer> pre = PreTokenizer::named(name);
    REQUIRE_FALSE(pre.ok());
    CHECK(pre.error().code == ErrorCode::unsupported);
    CHECK(pre.error().text.find("supported are smollm, gpt-2, llama-bpe and qwen2") !=
          std::string::npos);
  }
}

}  // namespace baton
