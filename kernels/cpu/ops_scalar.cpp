#include "kernels/cpu/attention.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/linear_f32.h"
#include "kernels/cpu/linear_q8.h"
#include "kernels/cpu/ops_table.h"
#include "kernels/cpu/vocabulary.h"

namespace baton::scalar {

const Ops& table() noexcept {
  static constexpr Ops kTable = {
      .name = "scalar",
      .embed = embed_row,
      .rms_norm = rms_norm,
      .quantize = quantize,
      .linear_q8 = linear_q8,
      .linear_f32 = linear_f32,
      .rope = rope,
      .kv_write = kv_write,
      .attention = attention,
      .silu_mul = silu_mul,
      .add = add_rows,
      .vocab_tiles = vocab_tiles,
      .top_k = top_k,
      .exp = map<exp_f>,
      .log = map<log_f>,
      .sin = map<sin_f>,
      .cos = map<cos_f>,
      .sigmoid = map<sigmoid_f>,
  };
  return kTable;
}

}  // namespace baton::scalar
