#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/model/model_file.h"

namespace baton {

// A byte-level BPE tokenizer read from a model file. Owns copies of all it needs, so the file may
// be closed. Immutable after load: every const member is thread-safe (the worker pool encodes).
class Tokenizer {
 public:
  // Errors: bad_model (a malformed vocabulary) or unsupported (another model or pre-tokenizer).
  static Result<Tokenizer> load(const ModelFile& file);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // The ids of a text, nothing added. With `parse_special` the strings of control and user-defined
  // tokens become those tokens; without, no text ever yields a control token. Bytes for which the
  // vocabulary has no token are dropped. Error invalid_argument: the text is not UTF-8.
  Result<std::vector<std::int32_t>> encode(std::string_view text, bool parse_special) const;
  // The same with BOS in front and EOS behind where the model asks for them: for plain prompts.
  Result<std::vector<std::int32_t>> encode_prompt(std::string_view text, bool parse_special) const;

  // The text of all ids; ill-formed UTF-8 as the Detokenizer has it.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special) const;

  std::int32_t vocab_size() const;
  bool contains(std::int64_t id) const { return id >= 0 && id < vocab_size(); }
  // The bytes a token stands for; of a control token its name. Precondition: contains(id).
  std::string_view bytes(std::int32_t id) const;
  bool is_control(std::int32_t id) const;  // precondition: contains(id)
  // The id of a control or user-defined token by its text.
  std::optional<std::int32_t> special(std::string_view text) const;

  std::optional<std::int32_t> bos() const;
  std::optional<std::int32_t> eos() const;
  bool adds_bos() const;
  bool adds_eos() const;
  // Ids that end an answer by default: EOS, end of turn, end of text. Ascending, no duplicates.
  const std::vector<std::int32_t>& stop_ids() const;
  const std::string& pre_tokenizer() const;  // "smollm"

 private:
  struct State;
  explicit Tokenizer(std::unique_ptr<const State> state);
  std::unique_ptr<const State> state_;
};

}  // namespace baton
