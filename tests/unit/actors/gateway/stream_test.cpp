#include "actors/gateway/stream.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <doctest/doctest.h>

using namespace baton;

namespace {

constexpr ActorId kPrefill{1, kPrefillSlot, 1};
constexpr ActorId kDecode{2, kDecodeSlot, 1};

const Tokenizer& bytes() {
  static const Tokenizer tokenizer = Tokenizer::of_bytes({"<|end|>"});
  return tokenizer;
}

Stream make_stream(std::vector<std::string> stop = {}, uint32_t min_tokens = 0,
                   size_t held_max = 64) {
  StreamOptions options;
  options.tokenizer = &bytes();
  options.stop = std::move(stop);
  options.min_tokens = min_tokens;
  options.held_max = held_max;
  options.logprobs = true;
  return Stream(options);
}

TokenEntry entry(uint32_t epoch, uint32_t seq, TokenId id, Finish finish = Finish::none) {
  TokenEntry e;
  e.epoch = Epoch{epoch};
  e.seq = seq;
  e.id = id;
  e.logprob = static_cast<float>(seq);
  e.finish = finish;
  return e;
}

std::string whole_text(const Stream& stream, const std::vector<uint32_t>& cuts) {
  std::string text;
  for (size_t i = 0; i + 1 < cuts.size(); ++i) text += stream.stretch(0, cuts[i], cuts[i + 1]).text;
  return text;
}

}  // namespace

TEST_CASE("a stream commits entries of its epoch in order, each once") {
  Stream stream = make_stream();
  CHECK(stream.accept(entry(1, 0, 'a'), kPrefill) == Commit::held);  // before Admitted
  CHECK(stream.advance(Epoch{1}));
  CHECK(stream.committed(0) == 1);
  CHECK(stream.accept(entry(1, 0, 'a'), kPrefill) == Commit::duplicate);
  CHECK(stream.accept(entry(1, 2, 'c'), kDecode) == Commit::held);
  CHECK(stream.has_gap(0));
  CHECK(stream.holder(0) == kDecode);
  CHECK(stream.accept(entry(1, 1, 'b'), kDecode) == Commit::committed);
  CHECK_FALSE(stream.has_gap(0));
  CHECK(stream.committed_ids() == std::vector<std::vector<TokenId>>{{'a', 'b', 'c'}});
  CHECK(stream.accept(entry(1, 3, 'd', Finish::length), kDecode) == Commit::committed);
  CHECK(stream.finished());
  CHECK(stream.accept(entry(1, 4, 'e'), kDecode) == Commit::ended);
  CHECK(stream.result(0).text == "abcd");
  CHECK(stream.result(0).finish == Finish::length);
  CHECK(stream.result(0).logprobs == std::vector<float>{0, 1, 2, 3});
}

TEST_CASE("every order of late, repeated and stale entries gives the same stream") {
  // Epoch 1 brought two tokens, then its worker died; epoch 2 goes on at seq 2.
  const std::vector<TokenEntry> entries = {
      entry(2, 2, 'c'), entry(2, 3, 'd'), entry(2, 4, 'e', Finish::stop),
      entry(2, 3, 'd'), entry(1, 2, 'X'), entry(1, 3, 'Y', Finish::length),
      entry(1, 0, 'Z'),
  };
  std::vector<size_t> order(entries.size());
  std::iota(order.begin(), order.end(), 0);
  size_t orders = 0;
  do {
    // The freeze comes at every position of the order, too: after it epoch 1 is over.
    for (size_t freeze_at : {size_t{0}, order[0]}) {
      Stream stream = make_stream();
      stream.advance(Epoch{1});
      stream.accept(entry(1, 0, 'a'), kPrefill);
      stream.accept(entry(1, 1, 'b'), kDecode);
      bool frozen = false;
      for (size_t i = 0; i < order.size(); ++i) {
        const TokenEntry& e = entries[order[i]];
        if (i == freeze_at) frozen = stream.advance(Epoch{2});
        if (!frozen && e.epoch == Epoch{1}) continue;  // would have been committed: another case
        stream.accept(e, kDecode);
      }
      if (!frozen) stream.advance(Epoch{2});
      REQUIRE(stream.result(0).text == "abcde");
      REQUIRE(stream.result(0).finish == Finish::stop);
      REQUIRE_FALSE(stream.has_gap(0));
    }
    ++orders;
  } while (std::next_permutation(order.begin(), order.end()));
  CHECK(orders == 5040);
}

TEST_CASE("an entry that found no room is known to be missing until it is sent again") {
  Stream stream = make_stream({}, 0, 2);
  stream.advance(Epoch{1});
  CHECK(stream.accept(entry(1, 1, 'b'), kDecode) == Commit::held);
  CHECK(stream.accept(entry(1, 2, 'c'), kDecode) == Commit::held);
  CHECK(stream.accept(entry(1, 3, 'd', Finish::stop), kDecode) == Commit::dropped);
  CHECK(stream.accept(entry(1, 0, 'a'), kPrefill) == Commit::committed);
  CHECK(stream.committed(0) == 3);
  CHECK(stream.has_gap(0));  // nothing is held any more, and still
  CHECK(stream.accept(entry(1, 3, 'd', Finish::stop), kDecode) == Commit::committed);
  CHECK_FALSE(stream.has_gap(0));
  CHECK(stream.result(0).text == "abcd");
}

TEST_CASE(
    "T65: what an epoch leaves behind goes on in the next: tokens, stop strings, characters") {
  Stream stream = make_stream({"END"});
  stream.advance(Epoch{1});
  stream.accept(entry(1, 0, 'x'), kPrefill);
  stream.accept(entry(1, 1, 0xC3), kDecode);  // the first half of a character
  stream.advance(Epoch{2});
  CHECK(stream.holder(0).rank == kClientRank);
  stream.accept(entry(2, 2, 0xA9), kPrefill);
  CHECK(stream.holder(0).rank == kClientRank);  // an epoch's first token is prefill's
  stream.accept(entry(2, 3, 'E'), kDecode);
  CHECK(stream.holder(0) == kDecode);
  stream.advance(Epoch{3});
  stream.accept(entry(3, 4, 'N'), kPrefill);
  stream.accept(entry(3, 5, 'D'), kDecode);
  CHECK(stream.finished());
  CHECK(stream.result(0).text == "x\xC3\xA9");
  CHECK(stream.result(0).finish == Finish::stop);
  CHECK(stream.result(0).ids.size() == 6);
}

TEST_CASE("the texts of stretches join to the whole text, however it is cut") {
  std::mt19937_64 random(11);
  const std::string letters = "abE N\xC3\xA9\xF0\x9F\x98\x80\xFF";
  for (int round = 0; round < 500; ++round) {
    Stream stream = make_stream({"EN", "ab "});
    stream.advance(Epoch{1});
    const auto size = static_cast<uint32_t>(1 + random() % 30);
    for (uint32_t seq = 0; seq < size && !stream.finished(); ++seq) {
      const TokenId id = static_cast<unsigned char>(letters[random() % letters.size()]);
      stream.accept(entry(1, seq, id, seq + 1 == size ? Finish::length : Finish::none), kDecode);
    }
    REQUIRE(stream.finished());
    const uint32_t tokens = stream.committed(0);
    std::vector<uint32_t> cuts{0, tokens};
    for (int i = 0; i < 5; ++i) cuts.push_back(static_cast<uint32_t>(random() % (tokens + 1)));
    std::sort(cuts.begin(), cuts.end());
    // Only the last cut may be at the end: text at the end belongs to the last stretch alone.
    while (cuts.size() > 2 && cuts[cuts.size() - 2] == tokens) cuts.erase(cuts.end() - 2);
    REQUIRE(whole_text(stream, cuts) == stream.result(0).text);
  }
}

TEST_CASE("stop strings count only from the text after min_tokens on") {
  Stream stream = make_stream({"b"}, 2);
  stream.advance(Epoch{1});
  for (uint32_t seq = 0; const char c : std::string("bbab"))
    stream.accept(entry(1, seq++, c), kDecode);
  CHECK(stream.finished());
  CHECK(stream.result(0).text == "bba");
}

TEST_CASE("control tokens have ids and no text, and special bytes do not break characters") {
  Stream stream = make_stream();
  stream.advance(Epoch{1});
  stream.accept(entry(1, 0, 0xE2), kDecode);
  stream.accept(entry(1, 1, 256, Finish::stop), kDecode);
  CHECK(stream.result(0).ids == std::vector<TokenId>{0xE2, 256});
  CHECK(stream.result(0).text == "\xEF\xBF\xBD");  // the unfinished character, at the end
}

TEST_CASE("entries that no worker of ours would send are told apart") {
  Stream stream = make_stream();
  stream.advance(Epoch{1});
  CHECK(stream.accept(entry(1, 0, 257), kDecode) == Commit::invalid);
  CHECK(stream.accept(entry(1, 0, -1), kDecode) == Commit::invalid);
  TokenEntry other = entry(1, 0, 'a');
  other.choice = 1;
  CHECK(stream.accept(other, kDecode) == Commit::invalid);
  TokenEntry nothing = entry(1, 0, 0);
  nothing.has_token = false;
  CHECK(stream.accept(nothing, kDecode) == Commit::invalid);
  CHECK(stream.accept(entry(1, 0, 'a', Finish::cancelled), kDecode) == Commit::stale);
  CHECK(stream.committed(0) == 0);
}

TEST_CASE("text held back until the end belongs to the last token, so a Fetch repeats none of it") {
  Stream stream = make_stream({"xyz"});
  stream.advance(Epoch{1});
  stream.accept(entry(1, 0, 'a'), kPrefill);
  stream.accept(entry(1, 1, 'x', Finish::length), kDecode);
  CHECK(stream.stretch(0, 0, 2).text == "ax");
  CHECK(stream.stretch(0, 2, 2).text.empty());
}

TEST_CASE("a finish without a token ends the stream where it is") {
  Stream stream = make_stream({"zz"});
  stream.advance(Epoch{1});
  stream.accept(entry(1, 0, 'z'), kDecode);
  CHECK(stream.stretch(0, 0, 1).text == "");  // held back
  TokenEntry end = entry(1, 1, 0, Finish::length);
  end.has_token = false;
  CHECK(stream.accept(end, kDecode) == Commit::committed);
  CHECK(stream.committed(0) == 1);
  CHECK(stream.stretch(0, 1, 1).text == "z");
}
