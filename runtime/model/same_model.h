#pragma once

#include <cstdint>

#include "runtime/base/result.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_file.h"

namespace baton {

// A number for all that a file says of its tokenizer (ids, merges, special ids; not the chat
// template): files with equal digests turn the same text into the same ids.
std::uint64_t tokenizer_digest(const ModelFile& file);

// What weights must agree in to take each other's place.
struct ModelIdentity {
  ModelConfig config;
  std::uint64_t tokenizer = 0;  // its tokenizer_digest()
};

// Can weights of `offered` take the place of those of `served` in a running engine? They must have
// the same architecture, sizes and tokenizer; types of tensors may differ. Fails with `conflict`
// and a sentence that names the first difference. `path` is that of `offered`.
Result<void> check_same_model(const ModelIdentity& served, const ModelIdentity& offered,
                              const std::string& path);

}  // namespace baton
