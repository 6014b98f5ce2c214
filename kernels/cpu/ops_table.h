#pragma once

#include "kernels/ops.h"

// The tables of the instruction sets, one file each; isa.cpp chooses.
namespace baton {

namespace scalar {
const Ops& table() noexcept;
}
namespace avx2 {
const Ops& table() noexcept;
}
namespace avx512 {
const Ops& table() noexcept;
}
namespace amx {
const Ops& table() noexcept;  // avx512's, but for linear_q8
}

// Ops::embed of every table: exact, so that one will do.
void embed_row(const PackedMatrix& w, std::size_t row, float* out) noexcept;

}  // namespace baton
