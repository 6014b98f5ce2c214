// Any text through every pre-tokenizer: decoding gives it back, text yields no control token, and
// merging agrees with the definition (again and again the leftmost pair of the lowest rank).

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/model/bpe.h"
#include "runtime/model/detokenizer.h"
#include "runtime/model/tokenizer.h"
#include "tests/unit/model/gguf_builder.h"

namespace baton {
namespace {

constexpr std::size_t kSlowBytesMax = 512;  // what the definition, O(n^2), is asked for

test::Vocabulary vocabulary() {
  test::Vocabulary out;
  const auto byte = [](int value) { return test::byte_token(value); };
  out.merge("a", "a").merge("aa", "a").merge("aa", "aa").merge(byte(' '), byte(' '));
  out.merge(byte(' ') + byte(' '), byte(' ') + byte(' ')).merge("t", "h").merge("th", "e");
  out.merge(byte(' '), "the").merge("i", "m").merge("<", "|").merge("|", ">").merge("e", "n");
  out.merge(byte(0xC3), byte(0xA9)).merge(byte(0x9F), byte(0x98)).merge("1", "2").merge("'", "s");
  return out.token("<tool>", 3).token("<tool>x", 3).token("<think>", 4);
}

std::vector<Tokenizer> load_all() {
  std::vector<Tokenizer> out;
  for (const char* pre : {"smollm", "gpt-2", "llama-bpe", "qwen2"}) {
    const ModelFile file = test::open_bytes(test::tokenizer_file(pre, vocabulary())).value();
    out.push_back(Tokenizer::load(file).value());
  }
  return out;
}

MergeTable merge_table() {
  MergeTable table(8);
  CHECK(table.add('a', 'a', {0, 256}));
  CHECK(table.add(256, 'a', {1, 257}));
  CHECK(table.add('b', 'a', {2, 258}));
  CHECK(table.add(256, 256, {3, 259}));
  CHECK(table.add('a', 'b', {4, 260}));
  CHECK(table.add(260, 260, {5, 261}));
  return table;
}

void check_merging(const std::uint8_t* data, std::size_t size) {
  static const MergeTable table = merge_table();
  std::vector<TokenId> fast(data, data + std::min(size, kSlowBytesMax));
  std::vector<TokenId> slow = fast;
  BpeMerger(table).merge(fast);
  for (;;) {
    std::size_t best = slow.size();
    std::uint32_t rank = MergeTable::kNone;
    for (std::size_t i = 0; i + 1 < slow.size(); ++i) {
      const std::uint32_t found = table.find(slow[i], slow[i + 1]).rank;
      if (found < rank) {
        rank = found;
        best = i;
      }
    }
    if (rank == MergeTable::kNone) break;
    slow[best] = table.find(slow[best], slow[best + 1]).result;
    slow.erase(slow.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  CHECK(fast == slow);
}

void check(const Tokenizer& tokenizer, std::string_view text) {
  for (const bool special : {false, true}) {
    const Result<std::vector<TokenId>> ids = tokenizer.encode(text, special);
    CHECK(ids.ok() == is_utf8(text));
    if (!ids) continue;
    Detokenizer detokenizer(tokenizer, false);
    std::string back;
    for (const TokenId id : *ids) {
      CHECK(special || !tokenizer.is_control(id));
      const std::string step = detokenizer.push(id);
      CHECK(is_utf8(step));
      back += step;
    }
    back += detokenizer.finish();
    CHECK(back == text);
  }
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace baton;
  static const std::vector<Tokenizer> tokenizers = load_all();
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const Tokenizer& tokenizer : tokenizers) check(tokenizer, text);
  check_merging(data, size);
  // Any bytes as a stream of ids come out as UTF-8, whatever the cuts.
  Detokenizer detokenizer(tokenizers[0], size % 2 == 0);
  for (std::size_t i = 0; i < size; ++i) CHECK(is_utf8(detokenizer.push(3 + data[i])));
  CHECK(is_utf8(detokenizer.finish()));
  return 0;
}
