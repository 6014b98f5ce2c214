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

BATON_INLINE __m512i broadcast_i(const std::byte* p) {
  return _mm512_set1_epi32(*reinterpret_cast<const std::int32_t*>(p));
}
BATON_INLINE __m512 broadcast_f(const std::byte* p) {
  return _mm512_set1_ps(*reinterpret_cast<const float*>(p));
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

// R rows of a group of activations, from first_row on, x T neighbouring tiles, which lie
// tile_bytes apart. Each broadcast of activations serves T tiles.
template <class F, class Block, int R, int T>
BATON_INLINE void tile_rows(const std::byte* weights, std::size_t tile_bytes,
                            const std::byte* record, int first_row, std::size_t blocks,
                            Ahead& ahead, __m512 (&acc)[T][R]) {
  constexpr std::size_t kOffsets =
      kQuantOffsetsOffset - kQuantScalesOffset + (F::kType == DType::q8_0 ? kQuantRows * 4 : 0);
  const std::byte* q = record + first_row * kQuantBlock;
  const std::byte* scales = record + kQuantScalesOffset + first_row * sizeof(float);
  const std::byte* tiles[T];
  for (int t = 0; t < T; ++t) {
    tiles[t] = weights + static_cast<std::size_t>(t) * tile_bytes;
    for (int r = 0; r < R; ++r) acc[t][r] = _mm512_setzero_ps();
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    BATON_KEEP_POINTER(q);
    BATON_KEEP_POINTER(scales);
    for (int t = 0; t < T; ++t) BATON_KEEP_POINTER(tiles[t]);
    ahead.step();
    __m512i dot[T][R];
    for (int r = 0; r < R; ++r) {
      for (int t = 0; t < T; ++t) {
        dot[t][r] = F::kType == DType::q4_1 ? _mm512_setzero_si512()
                                            : broadcast_i(scales + kOffsets + r * 4);
      }
    }
#pragma GCC unroll 8
    for (int g = 0; g < 8; ++g) {
      __m512i w[T];
      for (int t = 0; t < T; ++t) w[t] = Block{tiles[t]}.q(g);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const __m512i a = broadcast_i(q + r * kQuantBlock + g * 4);
        for (int t = 0; t < T; ++t) dot[t][r] = _mm512_dpbusd_epi32(dot[t][r], w[t], a);
      }
    }
    for (int t = 0; t < T; ++t) {
      const Block block{tiles[t]};
      const __m512 d = block.d();
      for (int r = 0; r < R; ++r) {
        acc[t][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][r]),
                                    _mm512_mul_ps(d, broadcast_f(scales + r * 4)), acc[t][r]);
      }
      if constexpr (F::kType == DType::q4_1) {
        const __m512 m = block.m();
        for (int r = 0; r < R; ++r) {
          acc[t][r] = _mm512_fmadd_ps(m, broadcast_f(scales + (kQuantRows + r) * 4), acc[t][r]);
        }
      }
      tiles[t] += Block::kBytes;
    }
    q += kQuantRecordBytes;
    scales += kQuantRecordBytes;
  }
}

// One pass over T tiles: rows [row, row + R) of the activations.
struct Pass {
  const std::byte* weights;
  std::size_t tile_bytes;
  const std::byte* record;
  int first_row;  // within its group
  std::size_t blocks;
  const LinearOut* out;
  std::size_t row;
  std::size_t first;    // output
  std::size_t outputs;  // of the matrix
  Ahead* ahead;         // the weights of the next tiles
};

template <class F, class Block, int R, int T>
void run_pass(const Pass& p) {
  __m512 acc[T][R];
  Ahead ahead = *p.ahead;
  tile_rows<F, Block, R, T>(p.weights, p.tile_bytes, p.record, p.first_row, p.blocks, ahead, acc);
  *p.ahead = ahead;
#pragma GCC unroll 2
  for (int t = 0; t < T; ++t) {
    const std::size_t first = p.first + static_cast<std::size_t>(t) * kTileRows;
    const std::size_t left = p.outputs - first;
    const auto mask = static_cast<__mmask16>(left >= kTileRows ? 0xffffu : (1u << left) - 1u);
    float* target = p.out->data + p.row * p.out->stride + first;
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r, target += p.out->stride) {
      __m512 value = acc[t][r];
      if (p.out->add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, target), value);
      _mm512_mask_storeu_ps(target, mask, value);
    }
  }
}

// Passes of up to 6 rows take two tiles at a time, of 7 or 8 rows one: as registers allow.
constexpr std::size_t kPassRows = 6;
constexpr std::size_t kTallRows = 8;

template <class F, class Block, int T>
void run_rows(std::size_t rows, const Pass& pass) {
  using Run = void (*)(const Pass&);
  static constexpr Run kRuns[kPassRows] = {run_pass<F, Block, 1, T>, run_pass<F, Block, 2, T>,
                                           run_pass<F, Block, 3, T>, run_pass<F, Block, 4, T>,
                                           run_pass<F, Block, 5, T>, run_pass<F, Block, 6, T>};
  if (rows <= kPassRows) return kRuns[rows - 1](pass);
  Pass one = pass;
  for (int t = 0; t < T; ++t) {
    rows == 7 ? run_pass<F, Block, 7, 1>(one) : run_pass<F, Block, 8, 1>(one);
    one.weights += pass.tile_bytes;
    one.first += kTileRows;
  }
}

// How many rows the next pass takes of those left in a group.
std::size_t next_pass(std::size_t left) {
  if (left <= kTallRows) return left;
  return left <= 2 * kPassRows ? (left + 1) / 2 : kPassRows;
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

// From this many rows on it pays to widen weights once, into scratch.
constexpr std::size_t kWidenRowsMin = 25;

// All rows of the activations x T tiles from `tile` on.
template <class F, int T>
void run_tiles(const PackedMatrix& w, const QuantRows& x, const LinearOut& out, std::size_t tile,
               std::byte* scratch) {
  const std::size_t blocks = w.cols / kQuantBlock;
  const std::byte* weights = w.data + tile * blocks * F::kBytes;
  const bool widen = x.rows >= kWidenRowsMin;
  const std::size_t passes = (x.rows + kTallRows - 1) / kTallRows;
  Ahead ahead(weights + (widen ? T : 2 * T) * blocks * F::kBytes, T * blocks * F::kBytes,
              passes * blocks);
  Pass pass{weights, blocks * F::kBytes, x.data, 0,     blocks, &out,
            0,       tile * kTileRows,   w.rows, &ahead};
  if (widen) {
    auto* wide = reinterpret_cast<WideBlock*>(scratch);
    for (std::size_t t = 0; t < T; ++t) {
      widen_tile<F>(weights + t * blocks * F::kBytes, blocks, wide + t * blocks);
    }
    pass.weights = scratch;
    pass.tile_bytes = blocks * sizeof(WideBlock);
  }
  for (std::size_t group = 0; group < x.rows; group += kQuantRows) {
    const std::size_t rows = x.rows - group < kQuantRows ? x.rows - group : kQuantRows;
    pass.record = x.data + group / kQuantRows * blocks * kQuantRecordBytes;
    for (std::size_t done = 0; done < rows;) {
      const std::size_t part = next_pass(rows - done);
      pass.first_row = static_cast<int>(done);
      pass.row = group + done;
      if (widen) {
        run_rows<F, WidenedBlock, T>(part, pass);
      } else {
        run_rows<F, PackedBlock<F>, T>(part, pass);
      }
      done += part;
    }
  }
}

template <class F>
void run(const PackedMatrix& w, const QuantRows& x, const LinearOut& out, std::size_t tile_begin,
         std::size_t tile_end, std::byte* scratch) {
  std::size_t tile = tile_begin;
  for (; tile + 2 <= tile_end; tile += 2) run_tiles<F, 2>(w, x, out, tile, scratch);
  if (tile < tile_end) run_tiles<F, 1>(w, x, out, tile, scratch);
}

}  // namespace

void linear_q8(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,
               std::size_t tile_begin, std::size_t tile_end, std::byte* scratch) noexcept {
  switch (w.type) {
    case DType::q4_0: return run<FormatQ40>(w, x, out, tile_begin, tile_end, scratch);
    case DType::q4_1: return run<FormatQ41>(w, x, out, tile_begin, tile_end, scratch);
    case DType::q8_0: return run<FormatQ80>(w, x, out, tile_begin, tile_end, scratch);
    case DType::f32:
    case DType::f16:
    case DType::bf16: return;  // not quantised: linear_f32 is theirs
  }
}

}  // namespace baton::avx512
