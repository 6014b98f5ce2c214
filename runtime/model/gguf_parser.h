#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/base/result.h"
#include "runtime/model/model_file.h"

namespace baton {

// What a GGUF file holds; all views point into the bytes that were parsed.
struct GgufIndex {
  std::uint32_t version = 0;
  std::uint64_t alignment = 32;
  std::uint64_t data_offset = 0;
  std::vector<MetaValue> metadata;
  std::vector<TensorInfo> tensors;
  std::unordered_map<std::string_view, std::size_t> metadata_by_key;
  std::unordered_map<std::string_view, std::size_t> tensor_by_name;
};

// Parses and fully checks a GGUF file; `file` names it in errors. Pure; see ModelFile for the
// errors.
Result<GgufIndex> parse_gguf(std::span<const std::byte> bytes, const std::string& file);

// Text from a file made safe to print: at most 64 bytes, quoted, control and non-ASCII bytes
// escaped.
std::string quoted(std::string_view text);

// The errors of everything that reads a model file: "FILE: byte N, SUBJECT: got X; expected Y".
Error bad_model(const std::string& file, std::uint64_t offset, const std::string& subject,
                const std::string& got, const std::string& expected);

}  // namespace baton
