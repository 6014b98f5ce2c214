#include "runtime/model/inspect.h"

#include <doctest/doctest.h>

#include "tests/unit/model/gguf_builder.h"

namespace baton {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("inspect shows a model's shape, tokenizer, metadata and tensors") {
  test::GgufBuilder built = test::tiny_llama();
  built.str("general.name", "A \x1b[2J name\n").str("tokenizer.chat_template", "{{ 1 }}");
  const ModelFile file = test::open_bytes(built).value();
  const std::string text = describe_model(file, {true, true});
  CHECK(has(text, "file            model.gguf\n"));
  CHECK(has(text, "format          GGUF version 3, alignment 32\n"));
  CHECK(has(text, "heads           2 of 16, 1 key-value\n"));
  CHECK(has(text, "output          tied to the embedding\n"));
  CHECK(has(text, "stop            0 <|endoftext|>, 2 <|im_end|>\n"));
  CHECK(has(text, "chat template   7 bytes\n"));
  CHECK(has(text, "name            A \\u001b[2J name\\n\n"));
  CHECK(has(text, "string[260]"));
  CHECK(has(text, "[\"<|endoftext|>\", \"<|im_start|>\", \"<|im_end|>\""));
  CHECK(has(text, "blk.0.ffn_down.weight"));
  CHECK(has(text, "64 x 32"));
  CHECK_FALSE(has(text, "\x1b"));
  CHECK_FALSE(has(describe_model(file), "blk.0.ffn_down.weight"));
  const Json json = describe_model_json(file);
  CHECK(json.find("config")->find("heads")->as_integer() == 2);
  CHECK(json.find("tokenizer")->find("stop_ids")->as_array().size() == 2);
  CHECK(json.find("tensors")->as_array().size() == 11);
  CHECK(parse_json(write_json(json)).ok());
}

TEST_CASE("inspect shows what is readable of a model that cannot be used") {
  test::GgufBuilder built = test::tiny_llama();
  built.str("general.architecture", "mamba").str("tokenizer.ggml.pre", "tekken");
  const ModelFile file = test::open_bytes(built).value();
  const std::string text = describe_model(file);
  CHECK(has(text, "model           unusable: model.gguf: architecture 'mamba' is not supported"));
  CHECK(has(text, "tokenizer       unusable: model.gguf: pre-tokenizer 'tekken' is not supported"));
  CHECK(has(text, "general.architecture"));
  CHECK(has(describe_model_json(file).find("config_error")->as_string(), "mamba"));
}

TEST_CASE("tokenize reports one line a token") {
  const ModelFile file =
      test::open_bytes(test::tokenizer_file("smollm", test::Vocabulary().merge("a", "b"))).value();
  const Tokenizer tokenizer = Tokenizer::load(file).value();
  const TokenizeReport report = tokenize_report(tokenizer, "ab\n<|im_end|>", true).value();
  CHECK(report.ids == std::vector<TokenId>{259, 13, 2});
  CHECK(report.pieces == std::vector<std::string>{"ab", "\\n", "<|im_end|>"});
  CHECK(tokenize_table(report) ==
        "     0      259  'ab'\n     1       13  '\\n'\n     2        2  '<|im_end|>'\n");
  CHECK_FALSE(tokenize_report(tokenizer, "\xFF", true).ok());
}

}  // namespace baton
