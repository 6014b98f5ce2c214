#include <immintrin.h>

#include "kernels/cpu/linear_q8.h"

// VPDPBUSD: lanes are 16 outputs, weights the unsigned operand, four activations broadcast the
// signed one. Offsets of Q4_0 and Q8_0 are where the accumulator starts.
namespace baton::avx512 {
namespace {

// What widened weights look like in scratch: one block of a tile, ready for VPDPBUSD.
struct alignas(64) WideBlock {
  __m512i q[8];  // columns 4g .. 4g + 3 of 16 rows
  __m512 d;
  __m512 m;
};

struct FormatQ40 {
  static constexpr DType kType = DType::q4_0;
  static constexpr std::size_t kBytes = kTileBlockQ40;
  static constexpr bool kNibbles = true;
};
struct FormatQ41 {
  static constexpr DType kType = DType::q4_1;
  static constexpr std::size_t kBytes = kTileBlockQ41;
  static constexpr bool kNibbles = true;
};
struct FormatQ80 {
  static constexpr DType kType = DType::q8_0;
  static constexpr std::size_t kBytes = kTileBlockQ80;
  static constexpr bool kNibbles = false;
};

BATON_INLINE __m512 load_halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Weights of a block as they lie in the tile; q(g) widens columns 4g .. 4g + 3 on the way.
template <class F>
struct PackedBlock {
  const std::byte* p;
  static constexpr std::size_t kBytes = F::kBytes;

  BATON_INLINE __m512i q(int g) const {
    if constexpr (F::kNibbles) {
      const __m512i half = _mm512_set1_epi8(15);
      const __m512i raw = _mm512_loadu_si512(p + (g % 4) * 64);
      return _mm512_and_si512(g < 4 ? raw : _mm512_srli_epi16(raw, 4), half);
    } else {
      return _mm512_loadu_si512(p + g * 64);
    }
  }
  BATON_INLINE __m512 d() const { return load_halves(p + (F::kNibbles ? 256 : 512)); }
  BATON_INLINE __m512 m() const { return load_halves(p + 288); }
};
struct WidenedBlock {
  const std::byte* p;
  static constexpr std::size_t kBytes = sizeof(WideBlock);

  BATON_INLINE __m512i q(int g) const { return reinterpret_cast<const WideBlock*>(p)->q[g]; }
  BATON_INLINE __m512 d() const { return reinterpret_cast<const WideBlock*>(p)->d; }
  BATON_INLINE __m512 m() const { return reinterpret_cast<const WideBlock*>(p)->m; }
};

// R rows of one group of activations x one tile.
template <class F, class Block, int R>
BATON_INLINE void tile_rows(const std::byte* weights, const std::byte* record, std::size_t blocks,
                            __m512 (&acc)[R]) {
  for (int r = 0; r < R; ++r) acc[r] = _mm512_setzero_ps();
  for (std::size_t b = 0; b < blocks; ++b) {
    const Block block{weights};
    const auto* q = reinterpret_cast<const std::int32_t*>(record);
    const auto* scales = reinterpret_cast<const float*>(record + kQuantScalesOffset);
    const auto* offsets = reinterpret_cast<const std::int32_t*>(record + kQuantOffsetsOffset);
    __m512i dot[R];
    for (int r = 0; r < R; ++r) {
      if constexpr (F::kType == DType::q4_1) {
        dot[r] = _mm512_setzero_si512();
      } else {
        dot[r] = _mm512_set1_epi32(offsets[(F::kType == DType::q8_0 ? kQuantRows : 0) + r]);
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      const __m512i w = block.q(g);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        dot[r] = _mm512_dpbusd_epi32(dot[r], w, _mm512_set1_epi32(q[r * 8 + g]));
      }
    }
    const __m512 d = block.d();
    for (int r = 0; r < R; ++r) {
      acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[r]),
                               _mm512_mul_ps(d, _mm512_set1_ps(scales[r])), acc[r]);
    }
    if constexpr (F::kType == DType::q4_1) {
      const __m512 m = block.m();
      for (int r = 0; r < R; ++r) {
        acc[r] = _mm512_fmadd_ps(m, _mm512_set1_ps(scales[kQuantRows + r]), acc[r]);
      }
    }
    weights += Block::kBytes;
    record += kQuantRecordBytes;
  }
}

template <class F, class Block, int R>
void group(const std::byte* weights, const std::byte* record, std::size_t blocks,
           const LinearOut& out, std::size_t row, std::size_t first, std::size_t outputs) {
  __m512 acc[R];
  tile_rows<F, Block, R>(weights, record, blocks, acc);
  const std::size_t left = outputs - first;
  const auto mask = static_cast<__mmask16>(left >= kTileRows ? 0xffffu : (1u << left) - 1u);
  float* p = out.data + row * out.stride + first;
  for (int r = 0; r < R; ++r, p += out.stride) {
    __m512 value = acc[r];
    if (out.add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, p), value);
    _mm512_mask_storeu_ps(p, mask, value);
  }
}

template <class F, class Block>
void group_of(std::size_t rows, const std::byte* weights, const std::byte* record,
              std::size_t blocks, const LinearOut& out, std::size_t row, std::size_t first,
              std::size_t outputs) {
  using Run = void (*)(const std::byte*, const std::byte*, std::size_t, const LinearOut&,
                       std::size_t, std::size_t, std::size_t);
  static constexpr Run kRuns[kQuantRows] = {
      group<F, Block, 1>, group<F, Block, 2>, group<F, Block, 3>, group<F, Block, 4>,
      group<F, Block, 5>, group<F, Block, 6>, group<F, Block, 7>, group<F, Block, 8>};
  kRuns[rows - 1](weights, record, blocks, out, row, first, outputs);
}

template <class F>
void widen_tile(const std::byte* weights, std::size_t blocks, WideBlock* wide) {
  for (std::size_t b = 0; b < blocks; ++b) {
    const PackedBlock<F> block{weights + b * F::kBytes};
    for (int g = 0; g < 8; ++g) wide[b].q[g] = block.q(g);
    wide[b].d = block.d();
    if constexpr (F::kType == DType::q4_1) wide[b].m = block.m();
  }
}

// Up to this many rows, weights are widened as they are used; beyond it once into scratch.
constexpr std::size_t kWidenRowsMin = 2 * kQuantRows;

template <class F>
void run(const PackedMatrix& w, const QuantRows& x, const LinearOut& out, std::size_t tile_begin,
         std::size_t tile_end, std::byte* scratch) {
  const std::size_t blocks = w.cols / kQuantBlock;
  const bool widen = x.rows > kWidenRowsMin;
  for (std::size_t tile = tile_begin; tile < tile_end; ++tile) {
    const std::byte* weights = w.data + tile * blocks * F::kBytes;
    if (widen) widen_tile<F>(weights, blocks, reinterpret_cast<WideBlock*>(scratch));
    for (std::size_t row = 0; row < x.rows; row += kQuantRows) {
      const std::size_t rows = x.rows - row < kQuantRows ? x.rows - row : kQuantRows;
      const std::byte* record = x.data + row / kQuantRows * blocks * kQuantRecordBytes;
      if (widen) {
        group_of<F, WidenedBlock>(rows, scratch, record, blocks, out, row, tile * kTileRows,
                                  w.rows);
      } else {
        group_of<F, PackedBlock<F>>(rows, weights, record, blocks, out, row, tile * kTileRows,
                                    w.rows);
      }
    }
  }
}

}  // namespace

void linear_q8(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,
               std::size_t tile_begin, std::size_t tile_end, std::byte* scratch) noexcept {
  switch (w.type) {
    case DType::q4_0:
      return run<FormatQ40>(w, x, out, tile_begin, tile_end, scratch);
    case DType::q4_1:
      return run<FormatQ41>(w, x, out, tile_begin, tile_end, scratch);
    case DType::q8_0:
      return run<FormatQ80>(w, x, out, tile_begin, tile_end, scratch);
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return;  // not quantised: linear_f32 is theirs
  }
}

}  // namespace baton::avx512
