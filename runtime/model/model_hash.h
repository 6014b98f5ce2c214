#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/model/model_file.h"

namespace baton {

// See ModelFile::fingerprint; `file` is the whole file.
std::string fingerprint_of(std::span<const std::byte> file, std::uint64_t data_offset,
                           const std::vector<TensorInfo>& tensors);

}  // namespace baton
