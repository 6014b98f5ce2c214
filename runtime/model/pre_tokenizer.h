#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "runtime/base/result.h"

namespace baton {

// Cuts text into the pieces within which a BPE tokenizer may merge. Owns one compiled expression;
// immutable, so `split` is thread-safe.
class PreTokenizer {
 public:
  // `name` is `tokenizer.ggml.pre` of a model file. Error unsupported: no such pre-tokenizer here.
  static Result<PreTokenizer> named(std::string_view name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Calls `piece` for each piece, in order; together they are the text. Precondition: text is
  // UTF-8. Error: the expression engine reached one of its limits.
  Result<void> split(std::string_view text,
                     const std::function<void(std::string_view)>& piece) const;

  bool whole_words_first() const { return whole_words_first_; }  // "ignore_merges"
  bool adds_bos_by_default() const { return adds_bos_; }

 private:
  struct Code;  // the compiled expression
  PreTokenizer(std::unique_ptr<const Code> code, bool whole_words_first, bool adds_bos);

  std::unique_ptr<const Code> code_;
  bool whole_words_first_ = false;
  bool adds_bos_ = false;
};

}  // namespace baton
