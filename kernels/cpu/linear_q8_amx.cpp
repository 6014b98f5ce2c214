#include <immintrin.h>

#include "kernels/cpu/linear_q8.h"
#include "kernels/cpu/ops_table.h"

// AMX: TDPBSSD gives the exact dot products of up to 12 rows of activations with 16 outputs over
// one block of 32 columns. Rule 1 wants each block scaled by itself, so a product goes through
// memory into vector registers, where it is converted and added as everywhere else. Products are
// made one block ahead, so that their latency hides behind the arithmetic of the block before.
namespace baton::amx {
namespace {

// What widened weights look like in scratch: one block of a tile, signed bytes without offset.
struct alignas(64) WideBlock {
  __m512i q[8];  // columns 4g .. 4g + 3 of 16 rows: a tile register's rows
  __m512 d;
  __m512 m;
};

BATON_INLINE __m512 load_halves(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

BATON_INLINE void widen_nibbles(const std::byte* block, __m512i offset, WideBlock& wide) {
  const __m512i half = _mm512_set1_epi8(15);
  for (int g = 0; g < 4; ++g) {
    const __m512i raw = _mm512_loadu_si512(block + g * 64);
    const __m512i low = _mm512_and_si512(raw, half);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi16(raw, 4), half);
    wide.q[g] = _mm512_sub_epi8(low, offset);
    wide.q[g + 4] = _mm512_sub_epi8(high, offset);
  }
  wide.d = load_halves(block + 256);
}

void widen_tile(DType type, const std::byte* tile, std::size_t blocks, WideBlock* wide) {
  const __m512i zero = _mm512_setzero_si512();
  for (std::size_t b = 0; b < blocks; ++b, ++wide) {
    if (type == DType::q4_1) {
      const std::byte* block = tile + b * kTileBlockQ41;
      widen_nibbles(block, zero, *wide);
      wide->m = load_halves(block + 288);
    } else if (type == DType::q4_0) {
      widen_nibbles(tile + b * kTileBlockQ40, _mm512_set1_epi8(8), *wide);
    } else {
      const std::byte* block = tile + b * kTileBlockQ80;
      const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
      for (int g = 0; g < 8; ++g) {
        wide->q[g] = _mm512_xor_si512(_mm512_loadu_si512(block + g * 64), sign);
      }
      wide->d = load_halves(block + 512);
    }
  }
}

// Tile registers: products of two tiles of weights, twice; activations; weights.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t column_bytes[16] = {};
  std::uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

// Takes 200 cycles: once a call.
void configure() {
  constexpr auto kRows = static_cast<std::uint8_t>(kQuantRows);
  TileConfig config;
  for (int tile = 0; tile < 4; ++tile) {
    config.column_bytes[tile] = 64;
    config.rows[tile] = kRows;
  }
  config.column_bytes[4] = kQuantBlock;
  config.rows[4] = kRows;
  for (int tile = 6; tile < 8; ++tile) {
    config.column_bytes[tile] = 64;
    config.rows[tile] = 8;
  }
  asm volatile("ldtilecfg %0" ::"m"(config));  // the intrinsic reads only its first bytes
}

// Products of a group of rows x T tiles of one block.
template <int T>
struct alignas(64) Products {
  std::int32_t v[T][kQuantRows][kTileRows];
};

// Products of a block, left in tile registers.
template <int T>
BATON_INLINE void multiply(const std::byte* record, const WideBlock* w0, const WideBlock* w1) {
  _tile_loadd(4, record, kQuantBlock);
  _tile_loadd(6, w0, 64);
  _tile_zero(0);
  _tile_dpbssd(0, 4, 6);
  if constexpr (T == 2) {
    _tile_loadd(7, w1, 64);
    _tile_zero(1);
    _tile_dpbssd(1, 4, 7);
  }
}
// Stores one tile's products and starts the next block's in its register right behind: in any other
// order the processor does one after the other.
template <int T>
BATON_INLINE void store_and_multiply(Products<T>& out, const std::byte* record, const WideBlock* w0,
                                     const WideBlock* w1) {
  _tile_loadd(4, record, kQuantBlock);
  _tile_loadd(6, w0, 64);
  if constexpr (T == 2) _tile_loadd(7, w1, 64);
  _tile_stored(0, out.v[0], 64);
  _tile_zero(0);
  _tile_dpbssd(0, 4, 6);
  if constexpr (T == 2) {
    _tile_stored(1, out.v[1], 64);
    _tile_zero(1);
    _tile_dpbssd(1, 4, 7);
  }
}

template <bool kMin, int T>
BATON_INLINE void accumulate(const Products<T>& dots, const std::byte* scales, const WideBlock* w0,
                             const WideBlock* w1, __m512 (&acc)[T][kQuantRows]) {
  const auto* da = reinterpret_cast<const float*>(scales);
  const float* sa = da + kQuantRows;
  const __m512 d[2] = {w0->d, w1->d};
  each<kQuantRows>([&](auto r) BATON_INLINE_LAMBDA {
    const __m512 scale = _mm512_set1_ps(da[r]);
    each<T>([&](auto t) BATON_INLINE_LAMBDA {
      const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots.v[t][r]));
      acc[t][r] = _mm512_fmadd_ps(dot, _mm512_mul_ps(d[t], scale), acc[t][r]);
    });
  });
  if constexpr (kMin) {
    const __m512 m[2] = {w0->m, w1->m};
    each<kQuantRows>([&](auto r) BATON_INLINE_LAMBDA {
      const __m512 sum = _mm512_set1_ps(sa[r]);
      each<T>([&](auto t)
                  BATON_INLINE_LAMBDA { acc[t][r] = _mm512_fmadd_ps(m[t], sum, acc[t][r]); });
    });
  }
}

// One group of activations x T neighbouring tiles. Rows that are not there are computed from
// whatever the record holds, and dropped.
struct Pass {
  const WideBlock* weights;
  const std::byte* record;
  std::size_t blocks;
  const LinearOut* out;
  std::size_t row;
  std::size_t rows;     // to store, at most kQuantRows
  std::size_t first;    // output
  std::size_t outputs;  // of the matrix
  Ahead* ahead;         // the weights of the next tiles
};

template <bool kMin, int T>
void run_pass(const Pass& p) {
  Products<T> dots[2];
  __m512 acc[T][kQuantRows];
  each<T>([&](auto t) BATON_INLINE_LAMBDA {
    each<kQuantRows>([&](auto r) BATON_INLINE_LAMBDA { acc[t][r] = _mm512_setzero_ps(); });
  });
  const WideBlock* w0 = p.weights;
  const WideBlock* w1 = p.weights + (T - 1) * p.blocks;
  const std::byte* record = p.record;
  multiply<T>(record, w0, w1);
  const std::size_t last = p.blocks - 1;
  const auto store_next = [&](std::size_t b) BATON_INLINE_LAMBDA {
    const std::size_t next = b < last ? b + 1 : last;  // the last one twice: its result is dropped
    store_and_multiply<T>(dots[b % 2], record + next * kQuantRecordBytes, w0 + next, w1 + next);
  };
  const auto add = [&](std::size_t b) BATON_INLINE_LAMBDA {
    accumulate<kMin, T>(dots[b % 2], record + b * kQuantRecordBytes + kQuantScalesOffset, w0 + b,
                        w1 + b, acc);
  };
  // Block b + 1 is multiplied while b goes to memory and b - 1 is accumulated.
  store_next(0);
  Ahead ahead = *p.ahead;
  for (std::size_t b = 1; b < p.blocks; ++b) {
    store_next(b);
    ahead.step();
    add(b - 1);
  }
  *p.ahead = ahead;
  add(last);
  each<T>([&](auto t) BATON_INLINE_LAMBDA {
    const std::size_t first = p.first + static_cast<std::size_t>(t) * kTileRows;
    const std::size_t left = p.outputs - first;
    const auto mask = static_cast<__mmask16>(left >= kTileRows ? 0xffffu : (1u << left) - 1u);
    float* target = p.out->data + p.row * p.out->stride + first;
    each<kQuantRows>([&](auto r) BATON_INLINE_LAMBDA {
      const __mmask16 used = r < static_cast<int>(p.rows) ? mask : __mmask16{0};
      __m512 value = acc[t][r];
      if (p.out->add) value = _mm512_add_ps(_mm512_maskz_loadu_ps(used, target), value);
      _mm512_mask_storeu_ps(target, used, value);
      target += p.out->stride;
    });
  });
}

template <int T>
void run_tiles(const PackedMatrix& w, const QuantRows& x, const LinearOut& out, std::size_t tile,
               std::byte* scratch) {
  const std::size_t blocks = w.cols / kQuantBlock;
  const std::size_t tile_bytes = packed_tile_bytes(w.type, w.cols);
  auto* wide = reinterpret_cast<WideBlock*>(scratch);
  for (std::size_t t = 0; t < T; ++t) {
    widen_tile(w.type, w.data + (tile + t) * tile_bytes, blocks, wide + t * blocks);
  }
  asm volatile("" ::: "memory");  // tile loads read it, which the compiler does not know
  const std::size_t passes = (x.rows + kQuantRows - 1) / kQuantRows;
  Ahead ahead(w.data + (tile + T) * tile_bytes, T * tile_bytes, passes * blocks);
  Pass pass{wide, x.data, blocks, &out, 0, 0, tile * kTileRows, w.rows, &ahead};
  for (; pass.row < x.rows; pass.row += kQuantRows) {
    pass.rows = x.rows - pass.row < kQuantRows ? x.rows - pass.row : kQuantRows;
    w.type == DType::q4_1 ? run_pass<true, T>(pass) : run_pass<false, T>(pass);
    pass.record += blocks * kQuantRecordBytes;
  }
}

// Below this VPDPBUSD is faster: widening weights and the fixed time of a tile's way through memory
// are shared by too few rows.
constexpr std::size_t kRowsMin = 2 * kQuantRows;

void linear_q8(const PackedMatrix& w, const QuantRows& x, const LinearOut& out,
               std::size_t tile_begin, std::size_t tile_end, std::byte* scratch) noexcept {
  if (x.rows < kRowsMin || w.cols == 0) {
    return avx512::linear_q8(w, x, out, tile_begin, tile_end, scratch);
  }
  configure();
  std::size_t tile = tile_begin;
  for (; tile + 2 <= tile_end; tile += 2) run_tiles<2>(w, x, out, tile, scratch);
  if (tile < tile_end) run_tiles<1>(w, x, out, tile, scratch);
  _tile_release();
}

}  // namespace

const Ops& table() noexcept {
  static const Ops kTable = [] {
    Ops ops = avx512::table();
    ops.name = "amx";
    ops.linear_q8 = linear_q8;
    return ops;
  }();
  return kTable;
}

}  // namespace baton::amx
