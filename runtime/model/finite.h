#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "runtime/model/model_file.h"

namespace baton {

// The first element of a tensor's data that is not a number (NaN or infinite), or, for a quantised
// type, the first of the block whose scale or offset is not one. Pure; whole blocks only.
std::optional<std::uint64_t> first_not_finite(TensorType type, std::span<const std::byte> data);

}  // namespace baton
