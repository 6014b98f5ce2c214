#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/model/model_file.h"

namespace baton {

// Where the string of a special token stands in a text.
struct SpecialSpan {
  std::size_t start = 0;
  std::size_t size = 0;
  TokenId id = -1;
};

// A byte-level BPE tokenizer read from a model file. Owns copies of all it needs, so the file may
// be closed. Immutable after load: every const member is thread-safe (the worker pool encodes).
class Tokenizer {
 public:
  // Errors: bad_model (a malformed vocabulary) or unsupported (another model or pre-tokenizer).
  static Result<Tokenizer> load(const ModelFile& file);
  // One without merges, for the simulator and tests: byte b is token b, then one control token for
  // each name, from 256 on; the first name is EOS. Precondition: names differ and are not empty.
  static Tokenizer of_bytes(const std::vector<std::string>& control_names);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of a text, nothing added. With `parse_special` the strings of control tokens become
  // those tokens; without, no text ever yields a control token. Strings of user-defined tokens
  // always become those. Bytes for which the vocabulary has no token are dropped, before merging.
  // Error invalid_argument: the text is not UTF-8 (at which byte), or longer than 1 GiB.
  Result<std::vector<TokenId>> encode(std::string_view text, bool parse_special) const;
  // The same with BOS in front and EOS behind where the model asks for them: for plain prompts.
  Result<std::vector<TokenId>> encode_prompt(std::string_view text, bool parse_special) const;

  // The text of all ids; ill-formed UTF-8 as the Detokenizer has it.
  std::string decode(std::span<const TokenId> ids, bool skip_special) const;

  TokenId vocab_size() const;
  bool contains(std::int64_t id) const { return id >= 0 && id < vocab_size(); }
  // The bytes a token stands for; of a control token its name. Precondition: contains(id).
  std::string_view bytes(TokenId id) const;
  bool is_control(TokenId id) const;  // precondition: contains(id)
  // The id of a control or user-defined token by its text.
  std::optional<TokenId> special(std::string_view text) const;
  // The first of them in a text from `at` on, the longest where several start.
  std::optional<SpecialSpan> find_special(std::string_view text, std::size_t at) const;

  std::optional<TokenId> bos() const;
  std::optional<TokenId> eos() const;
  bool adds_bos() const;
  bool adds_eos() const;
  // Ids that end an answer by default: EOS, end of turn, end of text. Ascending, no duplicates.
  const std::vector<TokenId>& stop_ids() const;
  const std::string& pre_tokenizer() const;  // "smollm"

 private:
  friend class TokenizerLoader;
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace baton
