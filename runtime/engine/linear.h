#pragma once

#include <cstddef>
#include <vector>

#include "kernels/ops.h"
#include "runtime/engine/numerics.h"

namespace baton {

// Rows of activations as linear layers read them. `quant` holds the same rows in int8; it is filled
// only where a layer reads it.
struct LinearInput {
  const float* f32 = nullptr;
  std::size_t stride = 0;
  QuantRows quant;
  std::size_t rows = 0;
};

// Matrices that read the same input and write side by side, as if they were one (q, k and v).
class LinearGroup {
 public:
  LinearGroup() = default;
  explicit LinearGroup(std::vector<PackedMatrix> parts);

  std::size_t columns() const { return columns_; }  // outputs of all parts
  std::size_t tiles() const { return tiles_; }
  bool reads_quant(ActivationMode mode) const;  // of some part

  // Output tiles [tile_begin, tile_end), counted over all parts, for all rows of `in`. Pure; see
  // Ops::linear_q8 for scratch and `out`.
  void run(const Ops& ops, ActivationMode mode, const LinearInput& in, const LinearOut& out,
           std::size_t tile_begin, std::size_t tile_end, std::byte* scratch) const;

 private:
  std::vector<PackedMatrix> parts_;
  std::size_t columns_ = 0;
  std::size_t tiles_ = 0;
};

inline bool reads_quant(const PackedMatrix& matrix, ActivationMode mode) {
  return mode == ActivationMode::int8 && is_quantized(matrix.type);
}

// Tiles of one matrix, by the op that its type and the mode ask for.
void run_linear(const Ops& ops, ActivationMode mode, const PackedMatrix& matrix,
                const LinearInput& in, const LinearOut& out, std::size_t tile_begin,
                std::size_t tile_end, std::byte* scratch);

// Rows [row, row + count) of quantised rows; row is a multiple of 8.
QuantRows quant_view(const QuantRows& all, std::size_t row, std::size_t count);

}  // namespace baton
