#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/ids.h"
#include "runtime/base/json.h"
#include "runtime/base/result.h"
#include "runtime/model/model_config.h"
#include "runtime/model/model_file.h"
#include "runtime/model/tokenizer.h"

namespace baton {

// Pure functions behind `baton inspect MODEL` and `baton tokenize`: no printing, no clocks.

struct InspectOptions {
  bool tensors = false;  // list every tensor
  bool metadata = true;  // list the metadata (long arrays and texts shortened)
};

// The report of a model file for people, several lines. What cannot be used says why in its place.
std::string describe_model(const ModelFile& file, const InspectOptions& options = {});
// The same as JSON: file, config, tokenizer, metadata, tensors.
Json describe_model_json(const ModelFile& file);

struct TokenizeReport {
  std::vector<TokenId> ids;
  std::vector<std::string> pieces;  // the text of each id, escaped so that a line stays a line
};

Result<TokenizeReport> tokenize_report(const Tokenizer& tokenizer, std::string_view text,
                                       bool parse_special);
// One line per token: position, id, piece.
std::string tokenize_table(const TokenizeReport& report);

}  // namespace baton
