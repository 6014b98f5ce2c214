#include "runtime/engine/linear.h"

#include <algorithm>
#include <utility>

#include "runtime/base/check.h"

namespace baton {

LinearGroup::LinearGroup(std::vector<PackedMatrix> parts) : parts_(std::move(parts)) {
  for (const PackedMatrix& part : parts_) {
    CHECK(part.cols == parts_.front().cols);
    columns_ += part.rows;
    tiles_ += part.tiles();
  }
}

bool LinearGroup::reads_quant(ActivationMode mode) const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [mode](const PackedMatrix& part) { return baton::reads_quant(part, mode); });
}

void LinearGroup::run(const Ops& ops, ActivationMode mode, const LinearInput& in,
                      const LinearOut& out, std::size_t tile_begin, std::size_t tile_end,
                      std::byte* scratch) const {
  std::size_t first = 0;  // tile and column at which the part starts
  std::size_t column = 0;
  for (const PackedMatrix& part : parts_) {
    const std::size_t begin = std::max(tile_begin, first);
    const std::size_t end = std::min(tile_end, first + part.tiles());
    if (begin < end) {
      const LinearOut part_out{out.data + column, out.stride, out.add};
      run_linear(ops, mode, part, in, part_out, begin - first, end - first, scratch);
    }
    first += part.tiles();
    column += part.rows;
  }
}

void run_linear(const Ops& ops, ActivationMode mode, const PackedMatrix& matrix,
                const LinearInput& in, const LinearOut& out, std::size_t tile_begin,
                std::size_t tile_end, std::byte* scratch) {
  if (reads_quant(matrix, mode)) {
    ops.linear_q8(matrix, in.quant, out, tile_begin, tile_end, scratch);
  } else {
    ops.linear_f32(matrix, in.f32, in.stride, in.rows, out, tile_begin, tile_end, scratch);
  }
}

QuantRows quant_view(const QuantRows& all, std::size_t row, std::size_t count) {
  CHECK(row % kQuantRows == 0 && row + count <= all.rows);
  const std::size_t group_bytes = all.cols / kQuantBlock * kQuantRecordBytes;
  return {all.data + row / kQuantRows * group_bytes, count, all.cols};
}

}  // namespace baton
