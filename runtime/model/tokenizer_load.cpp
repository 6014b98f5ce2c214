#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "runtime/base/utf8.h"
#include "runtime/model/byte_alphabet.h"
#include "runtime/model/gguf_parser.h"
#include "runtime/model/tokenizer.h"
#include "runtime/model/tokenizer_state.h"

namespace baton {
namespace {

constexpr std::size_t kSpecialBytesMax = 1024;  // of the string of a special token

// Tokens that end an answer, whatever their id is called in the metadata.
constexpr std::string_view kStopTexts[] = {
    "<|endoftext|>", "<|end_of_text|>", "<|im_end|>",    "<|eot_id|>", "<|eom_id|>",
    "<|end|>",       "<end_of_turn>",   "<|endofturn|>", "</s>",
};

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return std::nullopt;
}

bool looks_like_byte(std::string_view text) {
  return text.size() == 6 && text.starts_with("<0x") && text.ends_with(">");
}

// The byte of "<0x1F>"; nothing if it is written otherwise.
std::optional<char> byte_of(std::string_view text) {
  if (!looks_like_byte(text)) return std::nullopt;
  const std::optional<int> high = hex_digit(text[3]), low = hex_digit(text[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<char>(*high * 16 + *low);
}

bool is_word(TokenType type) {
  return type == TokenType::normal || type == TokenType::undefined ||
         type == TokenType::user_defined;
}

}  // namespace

// Reads the tokenizer of one file. The first failure stops it: each step returns false after it,
// and `error_` holds the sentence.
class TokenizerLoader {
 public:
  explicit TokenizerLoader(const ModelFile& file) : file_(file) {}

  Result<std::unique_ptr<const Tokenizer::State>> run() {
    if (create() && read_types() && add_tokens() && add_merges() && read_ids()) {
      collect_stop_ids();
      return std::unique_ptr<const Tokenizer::State>(std::move(state_));
    }
    return *error_;
  }

 private:
  bool fail(const MetaValue& at, const std::string& got, const std::string& expected) {
    error_ = bad_model(file_.path(), at.offset, "metadata key " + quoted(at.key), got, expected);
    return false;
  }

  bool unsupported(const std::string& sentence) {
    error_ = Error{ErrorCode::unsupported, file_.path() + ": " + sentence};
    return false;
  }

  const MetaValue* require(std::string_view key) {
    const MetaValue* value = file_.find(key);
    if (value == nullptr) {
      error_ = bad_model(file_.path(), 0, "metadata key " + quoted(key), "no such key",
                         "one, as in every model with a tokenizer");
    }
    return value;
  }

  bool strings(std::string_view key, std::vector<std::string_view>& out) {
    const MetaValue* value = require(key);
    if (value == nullptr) return false;
    std::optional<std::vector<std::string_view>> found = value->as_strings();
    if (!found) {
      return fail(*value, fmt::format("type {}", meta_type_name(value->type)),
                  "an array of strings");
    }
    out = std::move(*found);
    return true;
  }

  bool create() {
    const MetaValue* model = require("tokenizer.ggml.model");
    if (model == nullptr) return false;
    const std::string_view kind = model->as_string().value_or("");
    if (kind != "gpt2") {
      return unsupported(
          fmt::format("tokenizer model {} is not supported; supported is 'gpt2' "
                      "(byte-level BPE)",
                      quoted(kind)));
    }
    const MetaValue* name = file_.find("tokenizer.ggml.pre");
    if (name == nullptr || !name->as_string()) {
      return unsupported(
          "'tokenizer.ggml.pre' names no pre-tokenizer, which is not supported; "
          "supported are smollm, gpt-2, llama-bpe and qwen2: convert the model anew");
    }
    Result<PreTokenizer> pre = PreTokenizer::named(*name->as_string());
    if (!pre) return unsupported(pre.error().text);
    if (!strings("tokenizer.ggml.tokens", tokens_) || !strings("tokenizer.ggml.merges", merges_)) {
      return false;
    }
    tokens_at_ = file_.find("tokenizer.ggml.tokens");
    if (tokens_.empty()) return fail(*tokens_at_, "no tokens", "a vocabulary");
    state_ = std::make_unique<Tokenizer::State>(std::move(pre).value(), merges_.size());
    state_->pre_name = std::string(*name->as_string());
    return true;
  }

  bool read_types() {
    state_->types.assign(tokens_.size(), TokenType::normal);
    const MetaValue* value = file_.find("tokenizer.ggml.token_type");
    if (value == nullptr) return true;
    const std::optional<std::vector<std::int64_t>> types = value->as_integers();
    if (!types) {
      return fail(*value, fmt::format("type {}", meta_type_name(value->type)),
                  "an array of whole numbers");
    }
    if (types->size() != tokens_.size()) {
      return fail(*value, fmt::format("{} entries", types->size()),
                  fmt::format("one for each of the {} tokens", tokens_.size()));
    }
    for (std::size_t i = 0; i < types->size(); ++i) {
      const std::int64_t type = (*types)[i];
      if (type < 0 || type > static_cast<int>(TokenType::byte)) {
        return fail(*value, fmt::format("type {} for token {}", type, i), "a type from 1 to 6");
      }
      state_->types[i] = static_cast<TokenType>(type);
    }
    return true;
  }

  bool add_tokens() {
    std::fill(std::begin(state_->byte_token), std::end(state_->byte_token), -1);
    ids_.reserve(tokens_.size());
    state_->starts.reserve(tokens_.size() + 1);
    state_->starts.push_back(0);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (!add_token(static_cast<TokenId>(i), tokens_[i])) return false;
      state_->starts.push_back(state_->arena.size());
    }
    return true;
  }

  bool add_token(TokenId id, std::string_view text) {
    const auto named = [&] { return fmt::format("token {} {}", id, quoted(text)); };
    if (text.empty()) return fail(*tokens_at_, fmt::format("token {}, empty", id), "a text");
    if (!is_utf8(text)) return fail(*tokens_at_, named(), "UTF-8");
    const auto [known, added] = ids_.emplace(text, id);
    if (!added) {
      return fail(*tokens_at_, fmt::format("{} again, after token {}", named(), known->second),
                  "each token once");
    }
    const TokenType type = state_->types[id];
    const std::optional<char> byte = byte_of(text);
    if (!byte && (type == TokenType::byte || looks_like_byte(text))) {
      return fail(*tokens_at_, named(), "a byte token from '<0x00>' to '<0xFF>'");
    }
    if (type == TokenType::byte) {
      state_->arena += *byte;
    } else if (type == TokenType::normal || type == TokenType::undefined) {
      add_word(id, text);
    } else {
      state_->arena += text;
      if (type != TokenType::unused) return add_special(id, text, named());
    }
    return true;
  }

  void add_word(TokenId id, std::string_view text) {
    // Text outside the byte alphabet stands for itself, as in the decoder that defines the format.
    const std::string bytes = bytes_of_alphabet(text).value_or(std::string(text));
    if (bytes.size() == 1) state_->byte_token[static_cast<unsigned char>(bytes[0])] = id;
    if (state_->pre.whole_words_first()) state_->words.emplace(bytes, id);
    state_->arena += bytes;
  }

  bool add_special(TokenId id, std::string_view text, const std::string& named) {
    if (text.size() > kSpecialBytesMax) {
      return fail(*tokens_at_, fmt::format("{} of {} bytes", named, text.size()),
                  fmt::format("at most {} in a special token", kSpecialBytesMax));
    }
    state_->all_special.add(text, id);
    if (state_->types[id] == TokenType::user_defined) state_->user_defined.add(text, id);
    return true;
  }

  bool add_merges() {
    const MetaValue& at = *file_.find("tokenizer.ggml.merges");
    std::string joined;
    for (std::size_t rank = 0; rank < merges_.size(); ++rank) {
      const std::string_view text = merges_[rank];
      const auto named = [&] { return fmt::format("merge {} {}", rank, quoted(text)); };
      const std::size_t space = text.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == text.size()) {
        return fail(at, named(), "two tokens with a space between them");
      }
      const std::string_view left = text.substr(0, space), right = text.substr(space + 1);
      joined.assign(left).append(right);
      TokenId found[3];
      const std::string_view parts[3] = {left, right, joined};
      for (int i = 0; i < 3; ++i) {
        const auto known = ids_.find(parts[i]);
        if (known == ids_.end()) {
          return fail(at, fmt::format("{}, whose {} is no token", named(), quoted(parts[i])),
                      "a merge of two tokens into a third");
        }
        found[i] = known->second;
      }
      // A merge from or into a control token is passed over: text never yields one.
      if (!std::all_of(std::begin(found), std::end(found),
                       [&](TokenId id) { return is_word(state_->types[id]); })) {
        continue;
      }
      if (!state_->merges.add(found[0], found[1], {static_cast<std::uint32_t>(rank), found[2]})) {
        return fail(at, named() + " a second time", "each merge once");
      }
    }
    return true;
  }

  // An id from the metadata; `out` stays empty where the key is absent.
  bool read_id(std::string_view key, std::optional<TokenId>& out) {
    const MetaValue* value = file_.find(key);
    if (value == nullptr) return true;
    const std::optional<std::uint64_t> id = value->as_unsigned();
    if (!id || *id >= tokens_.size()) {
      return fail(*value, id ? std::to_string(*id) : "no whole number of at least 0",
                  fmt::format("a token id from 0 to {}", tokens_.size() - 1));
    }
    out = static_cast<TokenId>(*id);
    return true;
  }

  bool read_flag(std::string_view key, const std::optional<TokenId>& token, bool& out) {
    const MetaValue* value = file_.find(key);
    if (value == nullptr) {
      out = out && token.has_value();
      return true;
    }
    const std::optional<bool> flag = value->as_bool();
    if (!flag) {
      return fail(*value, fmt::format("type {}", meta_type_name(value->type)), "a boolean");
    }
    if (*flag && !token) return fail(*value, "true", "false, as no such token is named");
    out = *flag;
    return true;
  }

  bool read_ids() {
    std::optional<TokenId> ignored;
    for (const char* key : {"unknown_token_id", "padding_token_id", "seperator_token_id",
                            "separator_token_id", "mask_token_id"}) {
      if (!read_id(std::string("tokenizer.ggml.") + key, ignored)) return false;
    }
    state_->add_bos = state_->pre.adds_bos_by_default();
    return read_id("tokenizer.ggml.bos_token_id", state_->bos) &&
           read_id("tokenizer.ggml.eos_token_id", state_->eos) &&
           read_id("tokenizer.ggml.eot_token_id", eot_) &&
           read_id("tokenizer.ggml.eom_token_id", eom_) &&
           read_flag("tokenizer.ggml.add_bos_token", state_->bos, state_->add_bos) &&
           read_flag("tokenizer.ggml.add_eos_token", state_->eos, state_->add_eos);
  }

  void collect_stop_ids() {
    std::vector<TokenId>& stop = state_->stop_ids;
    for (const std::optional<TokenId>& id : {state_->eos, eot_, eom_}) {
      if (id) stop.push_back(*id);
    }
    for (const std::string_view text : kStopTexts) {
      if (const std::optional<TokenId> id = state_->all_special.exact(text)) stop.push_back(*id);
    }
    std::sort(stop.begin(), stop.end());
    stop.erase(std::unique(stop.begin(), stop.end()), stop.end());
  }

  const ModelFile& file_;
  const MetaValue* tokens_at_ = nullptr;
  std::vector<std::string_view> tokens_, merges_;
  std::unordered_map<std::string_view, TokenId> ids_;
  std::unique_ptr<Tokenizer::State> state_;
  std::optional<TokenId> eot_, eom_;
  std::optional<Error> error_;
};

Result<Tokenizer> Tokenizer::load(const ModelFile& file) {
  Result<std::unique_ptr<const State>> state = TokenizerLoader(file).run();
  if (!state) return state.error();
  return Tokenizer(std::move(state).value());
}

}  // namespace baton
