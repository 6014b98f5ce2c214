#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "runtime/base/result.h"
#include "runtime/engine/mapped_memory.h"
#include "runtime/model/model_file.h"

namespace baton {

// Reads the tensors of a model file one by one into memory of its own, so that what is hashed and
// checked is what is used, whatever becomes of the file meanwhile: a file that shrinks is an error
// here, where a mapping would end the process. Owns a buffer of the largest tensor's size. Used by
// one thread, which may be any.
class WeightsReader {
 public:
  // `file` is open and outlives the reader. Errors: not_found, corrupt (the file was replaced since
  // `file` was opened), unavailable (memory).
  static Result<WeightsReader> open(const ModelFile& file);

  WeightsReader(WeightsReader&& other) noexcept;
  WeightsReader& operator=(WeightsReader&&) = delete;
  ~WeightsReader();

  // The bytes of a tensor, good until the next call, all of them finite numbers. Errors: corrupt
  // (the file is shorter than it was), bad_model (NaN or infinite), not_found (it cannot be read).
  Result<std::span<const std::byte>> read(const TensorInfo& tensor);
  // Of names, types, shapes and bytes of all tensors that were read, in that order.
  std::uint64_t digest() const { return digest_; }

 private:
  WeightsReader(const ModelFile& file, int descriptor, MappedMemory buffer);
  Result<void> fill(std::uint64_t offset, std::span<std::byte> target) const;
  Result<void> check_header() const;

  const ModelFile* file_;
  int descriptor_;
  MappedMemory buffer_;
  std::uint64_t digest_ = 0;
};

}  // namespace baton
