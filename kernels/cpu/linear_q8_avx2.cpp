#include <immintrin.h>

#include "kernels/cpu/linear_q8.h"

// VPMADDUBSW with sums kept in int16 over a whole block: eight products of pairs of unsigned
// nibbles and int8 fit (15 * 127 * 2 * 8 = 30,480), so that widening to int32 is paid once a block.
// Bytes of Q8_0 (q + 128) are taken apart into two nibbles, 16 * high + low, each of which fits.
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

// Exact dot products of R rows with outputs 0..7 and 8..15 of a block of nibbles.
template <int R>
BATON_INLINE void dot_nibbles(const std::byte* block, const std::byte* q, __m256i (&dot)[R][2]) {
  __m256i acc[R][2];
  for (int r = 0; r < R; ++r) acc[r][0] = acc[r][1] = _mm256_setzero_si256();
#pragma GCC unroll 4
  for (int v = 0; v < 4; ++v) {
    const __m256i raw0 = load256(block + v * 64);
    const __m256i raw1 = load256(block + v * 64 + 32);
    const __m256i low0 = low_nibbles(raw0);
    const __m256i low1 = low_nibbles(raw1);
    for (int r = 0; r < R; ++r) {
      const __m256i a = broadcast_i(q + r * kQuantBlock + v * 4);
      add_products(acc[r][0], low0, a);
      add_products(acc[r][1], low1, a);
    }
    const __m256i high0 = high_nibbles(raw0);
    const __m256i high1 = high_nibbles(raw1);
    for (int r = 0; r < R; ++r) {
      const __m256i a = broadcast_i(q + r * kQuantBlock + 16 + v * 4);
      add_products(acc[r][0], high0, a);
      add_products(acc[r][1], high1, a);
    }
  }
  const __m256i ones = _mm256_set1_epi16(1);
  for (int r = 0; r < R; ++r) {
    dot[r][0] = _mm256_madd_epi16(acc[r][0], ones);
    dot[r][1] = _mm256_madd_epi16(acc[r][1], ones);
  }
}

// The same for half `h` of a block of bytes.
template <int R>
BATON_INLINE void dot_bytes(const std::byte* block, const std::byte* q, int h,
                            __m256i (&dot)[R][2]) {
  __m256i low[R];
  __m256i high[R];
  for (int r = 0; r < R; ++r) low[r] = high[r] = _mm256_setzero_si256();
#pragma GCC unroll 8
  for (int g = 0; g < 8; ++g) {
    const __m256i raw = load256(block + g * 64 + h * 32);
    const __m256i raw_low = low_nibbles(raw);
    const __m256i raw_high = high_nibbles(raw);
    for (int r = 0; r < R; ++r) {
      const __m256i a = broadcast_i(q + r * kQuantBlock + g * 4);
      add_products(low[r], raw_low, a);
      add_products(high[r], raw_high, a);
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
template <class F, int R>
BATON_INLINE void tile_rows(const std::byte* block, const std::byte* record, int first_row,
                            std::size_t blocks, Sums<R>& acc) {
  constexpr bool kBytes = F::kType == DType::q8_0;
  constexpr std::size_t kOffsets =
      kQuantOffsetsOffset - kQuantScalesOffset + (kBytes ? kQuantRows * 4 : 0);
  const std::byte* q = record + first_row * kQuantBlock;
  const std::byte* scales = record + kQuantScalesOffset + first_row * sizeof(float);
  for (std::size_t b = 0; b < blocks; ++b) {
    BATON_KEEP_POINTER(q);
    BATON_KEEP_POINTER(scales);
    BATON_KEEP_POINTER(block);
    __m256i dot[R][2];
    if constexpr (kBytes) {
      dot_bytes<R>(block, q, 0, dot);
      dot_bytes<R>(block, q, 1, dot);
    } else {
      dot_nibbles<R>(block, q, dot);
    }
    const auto* halves = reinterpret_cast<const __m128i*>(block + (kBytes ? 512 : 256));
#pragma GCC unroll 2
    for (int h = 0; h < 2; ++h) {
      const __m256 d = _mm256_cvtph_ps(_mm_loadu_si128(halves + h));
      const __m256 m = F::kType == DType::q4_1 ? _mm256_cvtph_ps(_mm_loadu_si128(halves + 2 + h))
                                               : _mm256_setzero_ps();
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
    block += F::kBytes;
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

template <class F, int R>
void rows_of_group(const std::byte* weights, const std::byte* record, int first_row,
                   std::size_t blocks, const LinearOut& out, std::size_t row, std::size_t first,
                   std::size_t outputs) {
  Sums<R> acc = {};
  tile_rows<F, R>(weights, record, first_row, blocks, acc);
  const std::size_t left = outputs - first;
  float* p = out.data + row * out.stride + first;
  for (int r = 0; r < R; ++r, p += out.stride) {
    store_half(p, left, out.add, _mm256_load_ps(acc.v[r][0]));
    if (left > 8) store_half(p + 8, left - 8, out.add, _mm256_load_ps(acc.v[r][1]));
  }
}

constexpr std::size_t kRowsAtOnce = 4;

template <class F>
void run(const PackedMatrix& w, const QuantRows& x, const LinearOut& out, std::size_t tile_begin,
         std::size_t tile_end) {
  using Run = void (*)(const std::byte*, const std::byte*, int, std::size_t, const LinearOut&,
                       std::size_t, std::size_t, std::size_t);
  static constexpr Run kRuns[kRowsAtOnce] = {rows_of_group<F, 1>, rows_of_group<F, 2>,
                                             rows_of_group<F, 3>, rows_of_group<F, 4>};
  const std::size_t blocks = w.cols / kQuantBlock;
  for (std::size_t tile = tile_begin; tile < tile_end; ++tile) {
    const std::byte* weights = w.data + tile * blocks * F::kBytes;
    for (std::size_t row = 0; row < x.rows; row += kRowsAtOnce) {
      const std::size_t rows = x.rows - row < kRowsAtOnce ? x.rows - row : kRowsAtOnce;
      const std::byte* record = x.data + row / kQuantRows * blocks * kQuantRecordBytes;
      kRuns[rows - 1](weights, record, static_cast<int>(row % kQuantRows), blocks, out, row,
                      tile * kTileRows, w.rows);
    }
  }
}

}  // namespace

void linear_q8(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,
               std::size_t tile_begin, std::size_t tile_end, std::byte*) noexcept {
  switch (w.type) {
    case DType::q4_0: return run<FormatQ40>(w, x, out, tile_begin, tile_end);
    case DType::q4_1: return run<FormatQ41>(w, x, out, tile_begin, tile_end);
    case DType::q8_0: return run<FormatQ80>(w, x, out, tile_begin, tile_end);
    case DType::f32:
    case DType::f16:
    case DType::bf16: return;  // not quantised: linear_f32 is theirs
  }
}

}  // namespace baton::avx2
