// Writes result lines (JSONL, for check.py) of the suites that need no forward pass.
//   oracle_text MODEL SUITE...      SUITE: tokenize, tiny_tokenize, detokenize, chat
// The cases are read from $BATON_ORACLE, by default tests/oracle/data of the source tree.

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/base/json.h"
#include "runtime/model/chat_template.h"
#include "runtime/model/detokenizer.h"
#include "runtime/model/model_file.h"
#include "runtime/model/tokenizer.h"

namespace baton {
namespace {

// Ends the program when a result is an error: a case that cannot run is a failure, not a gap.
template <class T>
T must(Result<T> result, const std::string& what) {
  if (!result) {
    std::fprintf(stderr, "oracle_text: %s: %s\n", what.c_str(), result.error().text.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

Json read_cases(const std::string& suite) {
  const char* folder = std::getenv("BATON_ORACLE");
  const std::string path =
      std::string(folder != nullptr ? folder : BATON_ORACLE_DATA) + "/" + suite + "_cases.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "oracle_text: %s cannot be read\n", path.c_str());
    std::exit(1);
  }
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  return must(parse_json(text), path);
}

Json json_of(const std::vector<TokenId>& ids) {
  Json out = Json::array();
  for (const TokenId id : ids) out.push_back(std::int64_t{id});
  return out;
}

void print(const char* suite, const Json& test_case, Json::Object members) {
  Json line = Json::object();
  line.set("suite", suite);
  line.set("name", *test_case.find("name"));
  for (Json::Member& member : members) line.set(member.name, std::move(member.value));
  std::puts(write_json(line).c_str());
}

void tokenize(const Tokenizer& tokenizer, const char* suite) {
  const Json cases = read_cases(suite);
  for (const Json& test_case : cases.find("cases")->as_array()) {
    const std::string& text = test_case.find("text")->as_string();
    const bool special = test_case.find("parse_special")->as_bool();
    const std::string& name = test_case.find("name")->as_string();
    print(suite, test_case, {{"ids", json_of(must(tokenizer.encode(text, special), name))}});
  }
}

void detokenize(const Tokenizer& tokenizer) {
  const Json cases = read_cases("detokenize");
  for (const Json& test_case : cases.find("cases")->as_array()) {
    Detokenizer detokenizer(tokenizer, test_case.find("skip_special")->as_bool());
    Json steps = Json::array();
    for (const Json& id : test_case.find("ids")->as_array()) {
      steps.push_back(detokenizer.push(static_cast<TokenId>(id.as_integer())));
    }
    print("detokenize", test_case, {{"steps", steps}, {"end", detokenizer.finish()}});
  }
}

void chat(const ModelFile& file, const Tokenizer& tokenizer) {
  const ChatTemplate chat_template = must(ChatTemplate::load(file, tokenizer), "template");
  const Json cases = read_cases("chat");
  for (const Json& test_case : cases.find("cases")->as_array()) {
    const std::string& name = test_case.find("name")->as_string();
    ChatInput input;
    input.messages = *test_case.find("messages");
    input.add_generation_prompt = test_case.find("add_generation_prompt")->as_bool();
    const std::vector<PromptSegment> segments = must(chat_template.render(input), name);
    const auto ids = [&](ChatEncoding encoding) {
      return json_of(must(encode_chat(tokenizer, segments, encoding), name));
    };
    print("chat", test_case,
          {{"prompt", segments_text(segments)},
           {"ids", ids(ChatEncoding::apart)},
           {"ids_joined", ids(ChatEncoding::joined)}});
  }
}

int run(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: oracle_text MODEL tokenize|tiny_tokenize|detokenize|chat...\n");
    return 64;
  }
  const ModelFile file = must(ModelFile::open(argv[1]), "model");
  const Tokenizer tokenizer = must(Tokenizer::load(file), "tokenizer");
  for (int i = 2; i < argc; ++i) {
    const std::string suite = argv[i];
    if (suite == "tokenize" || suite == "tiny_tokenize") {
      tokenize(tokenizer, suite.c_str());
    } else if (suite == "detokenize") {
      detokenize(tokenizer);
    } else if (suite == "chat") {
      chat(file, tokenizer);
    } else {
      std::fprintf(stderr, "oracle_text: unknown suite '%s'\n", suite.c_str());
      return 64;
    }
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) {
  return baton::run(argc, argv);
}
