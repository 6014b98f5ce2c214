#include "runtime/model/tokenizer.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/utf8.h"
#include "runtime/model/detokenizer.h"
#include "runtime/model/tokenizer_state.h"

namespace baton {
namespace {

constexpr std::size_t kTextBytesMax = std::size_t{1} << 30;

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, bool parse_special) const {
  if (text.size() > kTextBytesMax) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the text has {} bytes; at most {} can be tokenised", text.size(),
                             kTextBytesMax)};
  }
  if (const std::size_t valid = valid_utf8_prefix(text); valid != text.size()) {
    return Error{ErrorCode::invalid_argument,
                 fmt::format("the text is not UTF-8: byte {:#04x} at offset {} does not fit there",
                             static_cast<unsigned char>(text[valid]), valid)};
  }
  std::vector<TokenId> ids, symbols;
  BpeMerger merger(state_->merges);
  const auto add_piece = [&](std::string_view piece) {
    if (state_->pre.whole_words_first()) {
      const auto word = state_->words.find(std::string(piece));
      if (word != state_->words.end()) {
        ids.push_back(word->second);
        return;
      }
    }
    symbols.clear();
    for (const char c : piece) {
      const TokenId id = state_->byte_token[static_cast<unsigned char>(c)];
      if (id >= 0) symbols.push_back(id);
    }
    merger.merge(symbols);
    ids.insert(ids.end(), symbols.begin(), symbols.end());
  };
  const SpecialTokens& specials = parse_special ? state_->all_special : state_->user_defined;
  for (std::size_t at = 0; at < text.size();) {
    std::optional<SpecialSpan> special;
    if (!specials.empty()) special = specials.find(text, at);
    const std::size_t end = special ? special->start : text.size();
    if (end > at) {
      const Result<void> split = state_->pre.split(text.substr(at, end - at), add_piece);
      if (!split) return split.error();
    }
    at = end;
    if (special) {
      ids.push_back(special->id);
      at += special->size;
    }
  }
  return ids;
}

Result<std::vector<TokenId>> Tokenizer::encode_prompt(std::string_view text,
                                                      bool parse_special) const {
  Result<std::vector<TokenId>> ids = encode(text, parse_special);
  if (!ids) return ids;
  if (adds_bos()) ids->insert(ids->begin(), *bos());
  if (adds_eos()) ids->push_back(*eos());
  return ids;
}

std::string Tokenizer::decode(std::span<const TokenId> ids, bool skip_special) const {
  Detokenizer detokenizer(*this, skip_special);
  std::string text;
  for (const TokenId id : ids) text += detokenizer.push(id);
  return text + detokenizer.finish();
}

TokenId Tokenizer::vocab_size() const {
  return static_cast<TokenId>(state_->types.size());
}

std::string_view Tokenizer::bytes(TokenId id) const {
  CHECK(contains(id));
  return state_->bytes(id);
}

bool Tokenizer::is_control(TokenId id) const {
  CHECK(contains(id));
  const TokenType type = state_->types[id];
  return type == TokenType::control || type == TokenType::unknown;
}

std::optional<TokenId> Tokenizer::special(std::string_view text) const {
  return state_->all_special.exact(text);
}

std::optional<SpecialSpan> Tokenizer::find_special(std::string_view text, std::size_t at) const {
  return state_->all_special.find(text, at);
}

std::optional<TokenId> Tokenizer::bos() const {
  return state_->bos;
}
std::optional<TokenId> Tokenizer::eos() const {
  return state_->eos;
}
bool Tokenizer::adds_bos() const {
  return state_->add_bos;
}
bool Tokenizer::adds_eos() const {
  return state_->add_eos;
}
const std::vector<TokenId>& Tokenizer::stop_ids() const {
  return state_->stop_ids;
}
const std::string& Tokenizer::pre_tokenizer() const {
  return state_->pre_name;
}

}  // namespace baton
