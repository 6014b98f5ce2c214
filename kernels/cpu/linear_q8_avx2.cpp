#include <immintrin.h>

#include "kernels/cpu/linear_q8.h"

// VPMADDUBSW with sums kept in int16 over a whole block: eight products of pairs of unsigned
// nibbles and int8 fit (15 * 127 * 2 * 8 = 30,480), so that widening to int32 is paid once a block.
// Bytes of Q8_0 (q + 128) are taken apart into two nibbles, 16 * high + low, each of which fits.
// For many rows nibbles are widened to bytes once, into scratch.
namespace baton::avx2 {
namespace {

struct FormatQ40 {
  static constexpr DType kType = DType::q4_0;
  static constexpr std::size_t kBytes = kTileBlockQ40;
};
struct FormatQ41 {
  static constexpr DType kType = DType::q4_1;
  static constexpr std::size_t kBytes = kTileBlockQ41;
};
struct FormatQ80 {
  static constexpr DType kType = DType::q8_0;
  static constexpr std::size_t kBytes = kTileBlockQ80;
};

BATON_INLINE __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
BATON_INLINE __m256i broadcast_i(const std::byte* p) {
  return _mm256_set1_epi32(*reinterpret_cast<const std::int32_t*>(p));
}
BATON_INLINE __m256 broadcast_f(const std::byte* p) {
  return _mm256_broadcast_ss(reinterpret_cast<const float*>(p));
}
BATON_INLINE __m256i low_nibbles(__m256i x) {
  return _mm256_and_si256(x, _mm256_set1_epi8(15));
}
BATON_INLINE __m256i high_nibbles(__m256i x) {
  return low_nibbles(_mm256_srli_epi16(x, 4));
}
BATON_INLINE void add_products(__m256i& acc, __m256i w, __m256i a) {
  acc = _mm256_add_epi16(acc, _mm256_maddubs_epi16(w, a));
  BATON_SETTLE(acc);
}

BATON_INLINE __m256 widen_halves(const std::byte* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// A block of nibbles of a tile as packed. Vectors hold four columns of outputs 8h .. 8h + 7.
template <class F>
struct PackedBlock {
  static constexpr std::size_t kBytes = F::kBytes;
  static constexpr bool kTwoPlanes = F::kType == DType::q8_0;
  const std::byte* p;

  // Columns 4g .. 4g + 3. Q4_0 and Q4_1: weights; Q8_0: their low halves.
  BATON_INLINE __m256i low(int g, int h) const {
    if constexpr (kTwoPlanes) return low_nibbles(load256(p + g * 64 + h * 32));
    const __m256i raw = load256(p + g % 4 * 64 + h * 32);
    return g < 4 ? low_nibbles(raw) : high_nibbles(raw);
  }
  BATON_INLINE __m256i high(int g, int h) const {
    return high_nibbles(load256(p + g * 64 + h * 32));
  }
  BATON_INLINE __m256 d(int h) const { return widen_halves(p + (kTwoPlanes ? 512 : 256) + h * 16); }
  BATON_INLINE __m256 m(int h) const { return widen_halves(p + 288 + h * 16); }
};

// The same with nibbles and scales widened.
template <class F>
struct WidenedBlock {
  static constexpr bool kTwoPlanes = F::kType == DType::q8_0;
  static constexpr std::size_t kScales = kTwoPlanes ? 1024 : 512;
  static constexpr std::size_t kBytes = kScales + (F::kType == DType::q4_1 ? 128 : 64);
  const std::byte* p;

  BATON_INLINE __m256i low(int g, int h) const { return load256(p + g * 64 + h * 32); }
  BATON_INLINE __m256i high(int g, int h) const { return load256(p + 512 + g * 64 + h * 32); }
  BATON_INLINE __m256 d(int h) const { return load_ps(kScales + static_cast<std::size_t>(h) * 32); }
  BATON_INLINE __m256 m(int h) const {
    return load_ps(kScales + 64 + static_cast<std::size_t>(h) * 32);
  }
  BATON_INLINE __m256 load_ps(std::size_t at) const {
    return _mm256_load_ps(reinterpret_cast<const float*>(p + at));
  }
};

template <class F>
void widen_tile(const std::byte* tile, std::size_t blocks, std::byte* wide) {
  for (std::size_t b = 0; b < blocks; ++b) {
    const PackedBlock<F> block{tile + b * F::kBytes};
    std::byte* out = wide + b * WidenedBlock<F>::kBytes;
    const auto put = [&](std::size_t at, __m256i v) {
      _mm256_store_si256(reinterpret_cast<__m256i*>(out + at), v);
    };
    for (int h = 0; h < 2; ++h) {
      const auto half = static_cast<std::size_t>(h) * 32;
      for (int g = 0; g < 8; ++g) {
        const auto at = static_cast<std::size_t>(g) * 64 + half;
        put(at, block.low(g, h));
        if constexpr (PackedBlock<F>::kTwoPlanes) put(512 + at, block.high(g, h));
      }
      put(WidenedBlock<F>::kScales + half, _mm256_castps_si256(block.d(h)));
      if constexpr (F::kType == DType::q4_1) {
        put(WidenedBlock<F>::kScales + 64 + half, _mm256_castps_si256(block.m(h)));
      }
    }
  }
}

// Exact dot products of R rows with outputs 0..7 and 8..15 of a block of nibbles.
template <int R, class Block>
BATON_INLINE void dot_nibbles(const Block& block, const std::byte* q, __m256i (&dot)[R][2]) {
  __m256i acc[R][2];
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256i w0 = block.low(g, 0);
    const __m256i w1 = block.low(g, 1);
    for (int r = 0; r < R; ++r) {
      const __m256i a = broadcast_i(q + r * kQuantBlock + g * 4);
      add_products(acc[r][0], w0, a);
      add_products(acc[r][1], w1, a);
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) {
    dot[r][0] = _mm256_madd_epi16(acc[r][0], ones);
    dot[r][1] = _mm256_madd_epi16(acc[r][1], ones);
  }
}

// The same for half `h` of a block of bytes.
template <int R, class Block>
BATON_INLINE void dot_bytes(const Block& block, const std::byte* q, int h, __m256i (&dot)[R][2]) {
  __m256i low[R];
  __m256i high[R];
  for (int r = 0; r < R; ++r) low[r] = high[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256i w_low = block.low(g, h);
    const __m256i w_high = block.high(g, h);
    for (int r = 0; r < R; ++r) {
      const __m256i a = broadcast_i(q + r * kQuantBlock + g * 4);
      add_products(low[r], w_low, a);
      add_products(high[r], w_high, a);
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  const __m256i sixteens = _mm256_set1_epi16(16);
  for (int r = 0; r < R; ++r) {
    dot[r][h] =
        _mm256_add_epi32(_mm256_madd_epi16(low[r], ones), _mm256_madd_epi16(high[r], sixteens));
  }
}

// Sums of R rows x 16 outputs. They live in memory: registers go to the narrow sums of a block.
template <int R>
struct alignas(32) Sums {
  float v[R][2][8];
};

// R rows of a group of activations, from `first_row` on, x one tile.
template <class F, class Block, int R>
BATON_INLINE void tile_rows(const std::byte* weights, const std::byte* record, int first_row,
                            std::size_t blocks, Ahead& ahead, Sums<R>& acc) {
  constexpr bool kBytes = F::kType == DType::q8_0;
  constexpr std::size_t kOffsets =
      kQuantOffsetsOffset - kQuantScalesOffset + (kBytes ? kQuantRows * 4 : 0);
  const std::byte* q = record + first_row * kQuantBlock;
  const std::byte* scales = record + kQuantScalesOffset + first_row * sizeof(float);
  for (std::size_t b = 0; b < blocks; ++b) {
    BATON_KEEP_POINTER(q);
    BATON_KEEP_POINTER(scales);
    BATON_KEEP_POINTER(weights);
    ahead.step();
    const Block block{weights};
    __m256i dot[R][2];
    if constexpr (kBytes) {
      dot_bytes<R>(block, q, 0, dot);
      dot_bytes<R>(block, q, 1, dot);
    } else {
      dot_nibbles<R>(block, q, dot);
    }
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256 d = block.d(h);
      __m256 m = _mm256_setzero_ps();
      if constexpr (F::kType == DType::q4_1) m = block.m(h);
#pragma GCC unroll 4
      for (int r = 0; r < R; ++r) {
        __m256i exact = dot[r][h];
        if constexpr (F::kType != DType::q4_1) {
          exact = _mm256_add_epi32(exact, broadcast_i(scales + kOffsets + r * 4));
        }
        __m256 sum = _mm256_load_ps(acc.v[r][h]);
        sum = _mm256_fmadd_ps(_mm256_cvtepi32_ps(exact),
                              _mm256_mul_ps(d, broadcast_f(scales + r * 4)), sum);
        if constexpr (F::kType == DType::q4_1) {
          sum = _mm256_fmadd_ps(m, broadcast_f(scales + (kQuantRows + r) * 4), sum);
        }
        _mm256_store_ps(acc.v[r][h], sum);
      }
    }
    weights += Block::kBytes;
    q += kQuantRecordBytes;
    scales += kQuantRecordBytes;
  }
}

BATON_INLINE void store_half(float* p, std::size_t left, bool add, __m256 value) {
  if (left >= 8) {
    _mm256_storeu_ps(p, add ? _mm256_add_ps(_mm256_loadu_ps(p), value) : value);
    return;
  }
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left)), lanes);
  if (add) value = _mm256_add_ps(_mm256_maskload_ps(p, mask), value);
  _mm256_maskstore_ps(p, mask, value);
}

template <class F, class Block, int R>
void rows_of_group(const std::byte* weights, const std::byte* record, int first_row,
                   std::size_t blocks, const LinearOut& out, std::size_t row, std::size_t first,
                   std::size_t outputs, Ahead& next) {
  Sums<R> acc = {};
  Ahead ahead = next;
  tile_rows<F, Block, R>(weights, record, first_row, blocks, ahead, acc);
  next = ahead;
  const std::size_t left = outputs - first;
  float* p = out.data + row * out.stride + first;
  for (int r = 0; r < R; ++r, p += out.stride) {
    store_half(p, left, out.add, _mm256_load_ps(acc.v[r][0]));
    if (left > 8) store_half(p + 8, left - 8, out.add, _mm256_load_ps(acc.v[r][1]));
  }
}

constexpr std::size_t kRowsAtOnce = 4;
// From this many rows on it pays to widen weights once, into scratch.
constexpr std::size_t kWidenRowsMin = 13;

// All rows of the activations x one tile.
template <class F, class Block>
void run_tile(const std::byte* weights, const QuantRows& x, const LinearOut& out, std::size_t first,
              std::size_t outputs, const std::byte* next) {
  using Run = void (*)(const std::byte*, const std::byte*, int, std::size_t, const LinearOut&,
                       std::size_t, std::size_t, std::size_t, Ahead&);
  static constexpr Run kRuns[kRowsAtOnce] = {rows_of_group<F, Block, 1>, rows_of_group<F, Block, 2>,
                                             rows_of_group<F, Block, 3>,
                                             rows_of_group<F, Block, 4>};
  const std::size_t blocks = x.cols / kQuantBlock;
  const std::size_t passes = (x.rows + kRowsAtOnce - 1) / kRowsAtOnce;
  Ahead ahead(next, blocks * F::kBytes, passes * blocks);
  for (std::size_t row = 0; row < x.rows; row += kRowsAtOnce) {
    const std::size_t rows = x.rows - row < kRowsAtOnce ? x.rows - row : kRowsAtOnce;
    const std::byte* record = x.data + row / kQuantRows * blocks * kQuantRecordBytes;
    kRuns[rows - 1](weights, record, static_cast<int>(row % kQuantRows), blocks, out, row, first,
                    outputs, ahead);
  }
}

template <class F>
void run(const PackedMatrix& w, const QuantRows& x, const LinearOut& out, std::size_t tile_begin,
         std::size_t tile_end, std::byte* scratch) {
  const std::size_t blocks = w.cols / kQuantBlock;
  for (std::size_t tile = tile_begin; tile < tile_end; ++tile) {
    const std::byte* weights = w.data + tile * blocks * F::kBytes;
    const std::byte* next = weights + 2 * blocks * F::kBytes;
    if (x.rows < kWidenRowsMin) {
      run_tile<F, PackedBlock<F>>(weights, x, out, tile * kTileRows, w.rows, next);
    } else {
      widen_tile<F>(weights, blocks, scratch);
      run_tile<F, WidenedBlock<F>>(scratch, x, out, tile * kTileRows, w.rows, next);
    }
  }
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

}  // namespace baton::avx2
