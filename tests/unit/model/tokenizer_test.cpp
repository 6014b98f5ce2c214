#include "runtime/model/tokenizer.h"

#include <doctest/doctest.h>

#include <ctime>
#include <random>
#include <thread>

#include "tests/unit/model/gguf_builder.h"
#include "tests/unit/model/golden_files.h"
#include "tests/unit/model/oracle_models.h"

namespace baton {
namespace {

using test::GgufBuilder;
using test::open_bytes;
using test::tokenizer_file;
using test::Vocabulary;

using Ids = std::vector<TokenId>;

Result<Tokenizer> load(const GgufBuilder& built) {
  const Result<ModelFile> file = open_bytes(built);
  REQUIRE_MESSAGE(file.ok(), file.error().text);
  return Tokenizer::load(*file);
}

Tokenizer must_load(const GgufBuilder& built) {
  Result<Tokenizer> tokenizer = load(built);
  REQUIRE_MESSAGE(tokenizer.ok(), tokenizer.error().text);
  return std::move(tokenizer).value();
}

// The id of a single-byte token in Vocabulary.
TokenId byte_id(char byte) {
  return 3 + static_cast<unsigned char>(byte);
}

struct Defect {
  const char* name;
  std::function<void(Vocabulary&)> vocabulary;
  std::function<void(GgufBuilder&)> file;
  std::vector<std::string> says;
  ErrorCode code = ErrorCode::bad_model;
};

const auto kNothing = [](auto&) {};

const std::vector<Defect> kDefects = {
    // Row 39.
    {"byte token <0x-1>",
     [](auto& v) { v.token("<0x-1>", 6); },
     kNothing,
     {"token 259 '<0x-1>'", "from '<0x00>' to '<0xFF>'"}},
    {"byte token <0x-1> of normal type",
     [](auto& v) { v.token("<0x-1>", 1); },
     kNothing,
     {"token 259 '<0x-1>'"}},
    {"byte token without digits", [](auto& v) { v.token("<0xGG>", 6); }, kNothing, {"'<0xGG>'"}},
    {"byte token of three digits", [](auto& v) { v.token("<0x100>", 6); }, kNothing, {"'<0x100>'"}},
    {"empty token", [](auto& v) { v.token("", 1); }, kNothing, {"token 259, empty"}},
    {"empty control token", [](auto& v) { v.token("", 3); }, kNothing, {"token 259, empty"}},
    {"duplicate token",
     [](auto& v) { v.token("a", 1); },
     kNothing,
     {"token 259 'a' again, after token 100", "each token once"}},
    {"token that is not UTF-8",
     [](auto& v) { v.token("\xC3(", 3); },
     kNothing,
     {"token 259", "expected UTF-8"}},
    {"merge whose left is no token",
     [](auto& v) { v.merges.push_back("zz a"); },
     kNothing,
     {"merge 0 'zz a'", "'zz' is no token"}},
    {"merge whose right is no token",
     [](auto& v) { v.merges.push_back("a zz"); },
     kNothing,
     {"merge 0 'a zz'", "'zz' is no token"}},
    {"merge whose result is no token",
     [](auto& v) { v.merges.push_back("a b"); },
     kNothing,
     {"merge 0 'a b'", "'ab' is no token"}},
    {"merge without a space",
     [](auto& v) { v.merges.push_back("ab"); },
     kNothing,
     {"merge 0 'ab'", "a space between"}},
    {"merge of one token", [](auto& v) { v.merges.push_back("a "); }, kNothing, {"merge 0 'a '"}},
    {"empty merge", [](auto& v) { v.merges.push_back(""); }, kNothing, {"merge 0 ''"}},
    {"merge twice",
     [](auto& v) { v.merge("a", "b").merges.push_back("a b"); },
     kNothing,
     {"merge 1 'a b' a second time"}},
    {"bos out of range",
     kNothing,
     [](auto& f) { f.u32("tokenizer.ggml.bos_token_id", 259); },
     {"'tokenizer.ggml.bos_token_id'", "got 259", "from 0 to 258"}},
    {"eos of 2^32 - 1",
     kNothing,
     [](auto& f) { f.u32("tokenizer.ggml.eos_token_id", ~0u); },
     {"'tokenizer.ggml.eos_token_id'", "got 4294967295"}},
    {"negative bos",
     kNothing,
     [](auto& f) { f.raw("tokenizer.ggml.bos_token_id", 5, GgufBuilder::number(-1)); },
     {"'tokenizer.ggml.bos_token_id'"}},
    {"padding out of range",
     kNothing,
     [](auto& f) { f.u32("tokenizer.ggml.padding_token_id", 1000); },
     {"'tokenizer.ggml.padding_token_id'"}},
    {"bos that is a string",
     kNothing,
     [](auto& f) { f.str("tokenizer.ggml.bos_token_id", "<s>"); },
     {"'tokenizer.ggml.bos_token_id'"}},
    {"bos to add, but none named",
     kNothing,
     [](auto& f) {
       f.erase("tokenizer.ggml.bos_token_id").boolean("tokenizer.ggml.add_bos_token", 1);
     },
     {"'tokenizer.ggml.add_bos_token'"}},
    {"types for fewer tokens",
     [](auto& v) { v.types.pop_back(); },
     kNothing,
     {"'tokenizer.ggml.token_type'", "258 entries", "each of the 259 tokens"}},
    {"unknown token type", [](auto& v) { v.types[5] = 7; }, kNothing, {"type 7 for token 5"}},
    {"negative token type", [](auto& v) { v.types[5] = -1; }, kNothing, {"type -1 for token 5"}},
    {"token types as strings",
     kNothing,
     [](auto& f) { f.strs("tokenizer.ggml.token_type", {"1"}); },
     {"'tokenizer.ggml.token_type'"}},
    {"tokens as numbers",
     kNothing,
     [](auto& f) { f.i32s("tokenizer.ggml.tokens", {1}); },
     {"'tokenizer.ggml.tokens'", "an array of strings"}},
    {"no tokens",
     kNothing,
     [](auto& f) { f.strs("tokenizer.ggml.tokens", {}).i32s("tokenizer.ggml.token_type", {}); },
     {"no tokens"}},
    {"no merges",
     kNothing,
     [](auto& f) { f.erase("tokenizer.ggml.merges"); },
     {"'tokenizer.ggml.merges'", "no such key"}},
    {"no tokenizer",
     kNothing,
     [](auto& f) { f.erase("tokenizer.ggml.model"); },
     {"'tokenizer.ggml.model'", "no such key"}},
    {"special token of 2000 bytes",
     [](auto& v) { v.token(std::string(2000, 's'), 3); },
     kNothing,
     {"of 2000 bytes", "at most 1024"}},
    // Sound, but another kind.
    {"SentencePiece",
     kNothing,
     [](auto& f) { f.str("tokenizer.ggml.model", "llama"); },
     {"'llama' is not supported; supported is 'gpt2'"},
     ErrorCode::unsupported},
    {"unknown pre-tokenizer",
     kNothing,
     [](auto& f) { f.str("tokenizer.ggml.pre", "tekken"); },
     {"'tekken' is not supported; supported are smollm, gpt-2, llama-bpe and qwen2"},
     ErrorCode::unsupported},
    {"no pre-tokenizer",
     kNothing,
     [](auto& f) { f.erase("tokenizer.ggml.pre"); },
     {"names no pre-tokenizer"},
     ErrorCode::unsupported},
};

double thread_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += unit;
  return text;
}

void check_goldens(const Tokenizer& tokenizer, const char* file, const char* key) {
  const Json data = test::read_golden(std::string("tests/oracle/data/") + file);
  for (const Json& test_case : data.find("cases")->as_array()) {
    const std::string& name = test_case.find("name")->as_string();
    CAPTURE(name);
    const Result<Ids> ids = tokenizer.encode(test_case.find("text")->as_string(),
                                             test_case.find("parse_special")->as_bool());
    REQUIRE(ids.ok());
    Json got = Json::array();
    for (const TokenId id : *ids) got.push_back(std::int64_t{id});
    CHECK(write_json(got) == write_json(*test_case.find(key)));
  }
}

}  // namespace

TEST_CASE("a vocabulary that cannot be one is refused when it is loaded") {
  for (const Defect& defect : kDefects) {
    CAPTURE(defect.name);
    Vocabulary vocabulary;
    defect.vocabulary(vocabulary);
    GgufBuilder built = tokenizer_file("smollm", vocabulary);
    defect.file(built);
    const Result<Tokenizer> tokenizer = load(built);
    REQUIRE_FALSE(tokenizer.ok());
    const std::string& text = tokenizer.error().text;
    CAPTURE(text);
    CHECK(tokenizer.error().code == defect.code);
    CHECK(text.starts_with("model.gguf: "));
    for (const std::string& part : defect.says) {
      CAPTURE(part);
      CHECK(text.find(part) != std::string::npos);
    }
  }
}

TEST_CASE("the lowest rank merges first, the leftmost of equals") {
  Vocabulary vocabulary;
  vocabulary.merge("a", "a").merge("b", "c").merge("aa", "a").merge("a", "b").merge("aa", "aa");
  const Tokenizer tokenizer = must_load(tokenizer_file("gpt-2", vocabulary));
  const TokenId aa = 259, bc = 260, aaa = 261, aaaa = 263;
  CHECK(*tokenizer.encode("aa", false) == Ids{aa});
  CHECK(*tokenizer.encode("aaa", false) == Ids{aaa});        // (aa)a, then (aaa)
  CHECK(*tokenizer.encode("aaaa", false) == Ids{aaaa});      // (aa)(aa): no (aa)a is left
  CHECK(*tokenizer.encode("aaaaa", false) == Ids{aa, aaa});  // (aa)(aa)a: the lower rank wins
  CHECK(*tokenizer.encode("abc", false) == Ids{byte_id('a'), bc});  // b goes to c first
  CHECK(tokenizer.encode("", false)->empty());
}

TEST_CASE("bytes without a token are dropped before merging") {
  Vocabulary vocabulary;
  vocabulary.tokens[3 + 4] = "[gone]";  // the token of byte 4
  vocabulary.types[3 + 4] = 5;
  vocabulary.merge("!", "!");
  const Tokenizer tokenizer = must_load(tokenizer_file("smollm", vocabulary));
  CHECK(*tokenizer.encode("!\x04!", false) == Ids{259});
  CHECK(tokenizer.encode("\x04\x04", false)->empty());
}

TEST_CASE("text that is not UTF-8 is refused with the byte") {
  const Tokenizer tokenizer = must_load(tokenizer_file("smollm", Vocabulary()));
  for (const std::string_view text :
       {"ab\xC3", "ab\xFF", "ab\xED\xA0\x80", "ab\xC0\x80", "ab\xF4\x90\x80\x80"}) {
    for (const bool special : {false, true}) {
      const Result<Ids> ids = tokenizer.encode(text, special);
      REQUIRE_FALSE(ids.ok());
      CHECK(ids.error().code == ErrorCode::invalid_argument);
      CHECK(ids.error().text.find("at offset 2") != std::string::npos);
    }
  }
}

TEST_CASE("text never yields a control token unless specials are parsed") {
  Vocabulary vocabulary;
  vocabulary.token("<think>", 4).token("<|", 1).token("<|x|>", 3).token("ab", 3);
  vocabulary.merges = {"< |", "a b"};  // the second would make a control token
  const Tokenizer tokenizer = must_load(tokenizer_file("smollm", vocabulary));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id)) continue;
    const std::string text(tokenizer.bytes(id));
    const Ids ids = tokenizer.encode("x" + text + text + " y", false).value();
    for (const TokenId got : ids) {
      CHECK_FALSE(tokenizer.is_control(got));
    }
    CHECK(*tokenizer.encode(text, true) == Ids{id});
  }
  CHECK(tokenizer.special("<|x|>") == 261);
  CHECK(tokenizer.special("<|y|>") == std::nullopt);
  // A user-defined token is text like any other, and always whole.
  CHECK(tokenizer.encode("a<think>b", false)->at(1) == 259);
  // The longest special wins; what follows it is text again.
  CHECK(*tokenizer.encode("<|x|>|>", true) == Ids{261, byte_id('|'), byte_id('>')});
}

TEST_CASE("whole words come first where the pre-tokenizer says so, and BOS where the file does") {
  Vocabulary vocabulary;
  vocabulary.token("xyz", 1);  // no merges lead there
  const Tokenizer llama = must_load(tokenizer_file("llama-bpe", vocabulary));
  CHECK(*llama.encode("xyz", false) == Ids{259});
  CHECK(llama.adds_bos());
  CHECK(*llama.encode_prompt("xyz", false) == Ids{1, 259});
  const Tokenizer gpt2 = must_load(tokenizer_file("gpt-2", vocabulary));
  CHECK(gpt2.encode("xyz", false)->size() == 3);
  CHECK_FALSE(gpt2.adds_bos());
  GgufBuilder told = tokenizer_file("llama-bpe", vocabulary);
  told.boolean("tokenizer.ggml.add_bos_token", 0).boolean("tokenizer.ggml.add_eos_token", 1);
  const Tokenizer tokenizer = must_load(told);
  CHECK(*tokenizer.encode_prompt("xyz", false) == Ids{259, 2});
}

TEST_CASE("stop ids are those the file names and those known by their text") {
  Vocabulary vocabulary;
  vocabulary.token("<|eot_id|>", 3).token("<end_of_turn>", 1).token("<other>", 3);
  GgufBuilder built = tokenizer_file("smollm", vocabulary);
  built.u32("tokenizer.ggml.eom_token_id", 261);
  const Tokenizer tokenizer = must_load(built);
  CHECK(tokenizer.stop_ids() == Ids{0, 2, 259, 261});
  CHECK(tokenizer.bos() == 1);
  CHECK(tokenizer.eos() == 2);
  CHECK(tokenizer.contains(261));
  CHECK_FALSE(tokenizer.contains(262));
  CHECK_FALSE(tokenizer.contains(-1));
}

TEST_CASE("text outside the byte alphabet stands for itself, byte tokens for their byte") {
  Vocabulary vocabulary;
  vocabulary.token("日本", 1).token("<0xE6>", 6);
  const Tokenizer tokenizer = must_load(tokenizer_file("smollm", vocabulary));
  CHECK(tokenizer.bytes(259) == "日本");
  CHECK(tokenizer.bytes(260) == "\xE6");
}

TEST_CASE("decoding what was encoded gives the text back") {
  Vocabulary vocabulary;
  vocabulary.merge("a", "b")
      .merge(test::byte_token(0xC3), test::byte_token(0xA9))
      .merge("ab", "ab");
  vocabulary.merge(test::byte_token(' '), "a")
      .merge(test::byte_token(0x9F), test::byte_token(0x98));
  std::mt19937 random(5);
  const std::string_view parts[] = {"a", "b", " ",          "\n", "é",   "日",
                                    "😀", "1", "<|im_end|>", "'s", "\x04"};
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    const Tokenizer tokenizer = must_load(tokenizer_file(pre, vocabulary));
    for (int round = 0; round < 300; ++round) {
      std::string text;
      for (unsigned n = random() % 40; n > 0; --n) text += parts[random() % std::size(parts)];
      CHECK(tokenizer.decode(*tokenizer.encode(text, false), false) == text);
      CHECK(tokenizer.decode(*tokenizer.encode(text, true), false) == text);
    }
  }
}

TEST_CASE("many threads encode with one tokenizer") {
  const Tokenizer tokenizer = must_load(tokenizer_file("smollm", Vocabulary().merge("a", "b")));
  const std::string text = repeated("ab cab 12 é\n", 5000);
  const Ids expected = *tokenizer.encode(text, true);
  std::vector<std::thread> threads;
  std::vector<int> same(4, 0);
  for (std::size_t t = 0; t < same.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) same[t] += *tokenizer.encode(text, true) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : same) CHECK(count == 5);
}

TEST_CASE("a tiny model tokenises as the goldens say") {
  const std::optional<std::string> path = test::tiny_model("F32");
  if (!path) return;
  const Tokenizer tokenizer = Tokenizer::load(ModelFile::open(*path).value()).value();
  check_goldens(tokenizer, "tiny_tokenize_cases.json", "ids");
}

TEST_CASE("the real model tokenises as the goldens say, also where others disagree") {
  const std::optional<std::string> path = test::real_model();
  if (!path) return;
  const Tokenizer tokenizer = Tokenizer::load(ModelFile::open(*path).value()).value();
  check_goldens(tokenizer, "tokenize_cases.json", "ids");
  check_goldens(tokenizer, "tokenize_disagreements.json", "expected");
  CHECK(tokenizer.stop_ids() == Ids{0, 2});
  CHECK_FALSE(tokenizer.adds_bos());
}

TEST_CASE("a megabyte of anything is tokenised within a second, in proportion to its length") {
  std::optional<std::string> path = test::real_model();
  if (!path) path = test::tiny_model("F32");
  if (!path) return;
  const Tokenizer tokenizer = Tokenizer::load(ModelFile::open(*path).value()).value();
  for (const char* unit : {" ", "a", "\xCC\x81", "_", "\n", "1", "ab", "日", "'", " a", "<|im_",
                           "😀", "the quick brown fox jumps. ", "%$#@!^&*()", "!a", "\t \n"}) {
    CAPTURE(unit);
    double seconds[2] = {1e9, 1e9};
    for (int attempt = 0; attempt < 3; ++attempt) {
      for (int i = 0; i < 2; ++i) {
        const std::string text = repeated(unit, i == 0 ? 1u << 18 : 1u << 20);
        const double start = thread_seconds();
        CHECK(tokenizer.encode(text, true).ok());
        seconds[i] = std::min(seconds[i], thread_seconds() - start);
      }
    }
    CHECK(seconds[1] < 2.5 * 2.5 * std::max(seconds[0], 1e-3));
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    CHECK(seconds[1] < 1.0);
#endif
  }
}

}  // namespace baton
