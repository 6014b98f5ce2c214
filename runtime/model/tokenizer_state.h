#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/model/bpe.h"
#include "runtime/model/pre_tokenizer.h"
#include "runtime/model/special_tokens.h"
#include "runtime/model/tokenizer.h"

namespace baton {

// Token types of GGUF, with its numbers.
enum class TokenType : std::uint8_t {
  undefined = 0,
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,
  unused = 5,
  byte = 6,
};

// What a tokenizer knows, as the loader fills it.
struct Tokenizer::State {
  State(PreTokenizer pre_tokenizer, std::size_t merges_count)
      : pre(std::move(pre_tokenizer)), merges(merges_count) {}

  std::string pre_name;
  PreTokenizer pre;
  MergeTable merges;
  TokenId byte_token[256];            // -1: the vocabulary has none for that byte
  std::string arena;                  // the bytes of all tokens, one after another
  std::vector<std::uint64_t> starts;  // of each token in the arena; one more at the end
  std::vector<TokenType> types;
  std::unordered_map<std::string, TokenId> words;  // normal tokens by their bytes; only where
                                                   // whole words are looked up first
  SpecialTokens user_defined;                      // found in any text
  SpecialTokens all_special;  // control, unknown and user-defined: where specials are parsed
  std::optional<TokenId> bos, eos;
  bool add_bos = false, add_eos = false;
  std::vector<TokenId> stop_ids;

  std::string_view bytes(TokenId id) const {
    return std::string_view(arena).substr(starts[id], starts[id + 1] - starts[id]);
  }
};

}  // namespace baton
