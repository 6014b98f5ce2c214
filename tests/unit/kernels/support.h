#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <vector>

#include "kernels/formats.h"
#include "kernels/isa.h"
#include "kernels/ops.h"
#include "kernels/packed.h"

namespace baton::test {

// A seeded source of numbers (splitmix64), so that a failure repeats.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint64_t bits() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ULL);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  // In [low, high].
  std::size_t between(std::size_t low, std::size_t high) { return low + bits() % (high - low + 1); }
  double unit() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  // Roughly normal.
  float normal() { return static_cast<float>((unit() + unit() + unit() + unit() - 2.0) * 1.7); }

 private:
  std::uint64_t state_;
};

inline std::vector<float> normals(Random& random, std::size_t n, float scale = 1) {
  std::vector<float> v(n);
  for (float& x : v) x = random.normal() * scale;
  return v;
}

// Zeroed bytes at a multiple of 64.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes)
      : size_(bytes), data_(static_cast<std::byte*>(::operator new(bytes + 64, kAlign))) {
    std::memset(data_.get(), 0, bytes + 64);
  }
  std::byte* data() { return data_.get(); }
  const std::byte* data() const { return data_.get(); }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlign); }
  };
  std::size_t size_;
  std::unique_ptr<std::byte, Free> data_;
};

// Tables of the instruction sets beyond scalar that this machine has.
inline std::vector<const Ops*> vector_tables() {
  std::vector<const Ops*> tables;
  for (const Isa isa : {Isa::avx2, Isa::avx512, Isa::amx}) {
    if (const Ops* table = ops_for(isa)) tables.push_back(table);
  }
  return tables;
}
inline const Ops& reference() {
  return *ops_for(Isa::scalar);
}

// Index of the first element whose bits differ, or -1.
inline long first_difference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size()) return 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return static_cast<long>(i);
  }
  return -1;
}

// A random matrix in model file layout, its values as f32, and packed.
struct Weights {
  Weights(Random& random, DType type, std::size_t rows, std::size_t cols)
      : file(rows * row_bytes(type, cols)),
        values(rows * cols),
        packed(packed_bytes(type, rows, cols)),
        matrix{type, rows, cols, packed.data()} {
    fill(random, type, cols);
    for (std::size_t r = 0; r < rows; ++r) {
      dequantize_row(type, file.data() + r * row_bytes(type, cols), cols, &values[r * cols]);
    }
    pack_weights(type, rows, cols, file.data(), packed.data(), 0, matrix.tiles());
  }

  std::vector<std::uint8_t> file;
  std::vector<float> values;
  Buffer packed;
  PackedMatrix matrix;

 private:
  void fill(Random& random, DType type, std::size_t cols) {
    const auto put = [&](std::size_t at, std::uint16_t v) { std::memcpy(&file[at], &v, 2); };
    const auto scale = [&] { return f32_to_f16(static_cast<float>(0.001 + 0.02 * random.unit())); };
    if (!is_quantized(type)) {
      const std::size_t size = row_bytes(type, 1);
      for (std::size_t at = 0; at < file.size(); at += size) {
        const float v = random.normal() * 0.1f;
        if (type == DType::f32) std::memcpy(&file[at], &v, 4);
        if (type == DType::f16) put(at, f32_to_f16(v));
        if (type == DType::bf16) put(at, f32_to_bf16(v));
      }
      return;
    }
    for (std::uint8_t& byte : file) byte = static_cast<std::uint8_t>(random.bits());
    const auto step = static_cast<std::size_t>(format_info(type).block_bytes);
    for (std::size_t at = 0; at < file.size(); at += step) {
      put(at, scale());
      if (type == DType::q4_1) put(at + 2, f32_to_f16(random.normal() * 0.05f));
    }
    (void)cols;
  }
};

inline constexpr DType kTypes[] = {DType::f32,  DType::f16,  DType::bf16,
                                   DType::q4_0, DType::q4_1, DType::q8_0};

}  // namespace baton::test
