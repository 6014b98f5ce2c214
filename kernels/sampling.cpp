#include "kernels/sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

namespace baton {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Scratch of one call: `y` scores (logits, later (logit - max) / temperature), `p` their
// exponentials (0 where filtered out), `ids` an order.
struct Work {
  std::span<float> y;
  std::span<float> p;
  std::span<std::int32_t> ids;
};

std::size_t padded(std::size_t n) {
  return (n + 15) / 16 * 16;
}

bool in_range(std::int32_t id, std::size_t n) {
  return id >= 0 && static_cast<std::size_t>(id) < n;
}

// False if a logit is NaN or infinite.
bool copy_finite(const float* logits, std::span<float> y) {
  bool finite = true;
  for (std::size_t i = 0; i < y.size(); ++i) {
    y[i] = logits[i];
    finite &= (y[i] - y[i] == 0.0f);
  }
  return finite;
}

void apply_penalties(const SampleArgs& args, std::span<float> y) {
  for (const TokenCount& c : std::span(args.counts, args.counts_n)) {
    if (!in_range(c.id, y.size())) continue;
    float& v = y[static_cast<std::size_t>(c.id)];
    v = v > 0 ? v / args.repetition_penalty : v * args.repetition_penalty;
    v -= static_cast<float>(c.output_count) * args.frequency_penalty;
    if (c.output_count > 0) v -= args.presence_penalty;
  }
  for (const TokenBias& b : std::span(args.biases, args.biases_n)) {
    if (in_range(b.id, y.size())) y[static_cast<std::size_t>(b.id)] += b.bias;
  }
}

void apply_mask(const std::uint32_t* allowed, std::span<float> y) {
  if (allowed == nullptr) return;
  for (std::size_t i = 0; i < y.size(); ++i) {
    if ((allowed[i / 32] >> (i % 32) & 1u) == 0) y[i] = kNever;
  }
}

// (y - max) / temperature: the largest becomes exactly 0, however small the temperature.
void apply_temperature(float max, float temperature, std::span<float> y) {
  for (float& v : y) v = (v - max) / temperature;
}

// Keeps what ranks no worse than `last`: by value descending, then id ascending.
void keep_until(std::int32_t last, std::span<float> y) {
  const float bound = y[static_cast<std::size_t>(last)];
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (y[i] < bound || (y[i] == bound && i > static_cast<std::size_t>(last))) y[i] = kNever;
  }
}

void apply_top_k(const Ops& ops, std::int32_t k, const Work& w) {
  if (k <= 0 || static_cast<std::size_t>(k) >= w.y.size()) return;
  const std::size_t kept =
      ops.top_k(w.y.data(), w.y.size(), static_cast<std::size_t>(k), w.ids.data());
  keep_until(w.ids[kept - 1], w.y);
}

// Sum of one tile in 16 strided lanes, then the tree 8-4-2-1.
double tile_sum(std::span<const float> p) {
  double lanes[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= p.size(); i += 16) {
    for (std::size_t lane = 0; lane < 16; ++lane) lanes[lane] += static_cast<double>(p[i + lane]);
  }
  for (; i < p.size(); ++i) lanes[i % 16] += static_cast<double>(p[i]);
  for (std::size_t half = 8; half >= 1; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}
std::span<const float> tile_of(std::span<const float> p, std::size_t first) {
  return p.subspan(first, std::min(kVocabTile, p.size() - first));
}
double total_of(std::span<const float> p) {
  double total = 0;
  for (std::size_t first = 0; first < p.size(); first += kVocabTile) {
    total += tile_sum(tile_of(p, first));
  }
  return total;
}

// Fills w.ids with all ids, best first.
void sort_all(const Work& w) {
  std::iota(w.ids.begin(), w.ids.end(), 0);
  std::sort(w.ids.begin(), w.ids.end(), [&](std::int32_t a, std::int32_t b) {
    const float va = w.y[static_cast<std::size_t>(a)];
    const float vb = w.y[static_cast<std::size_t>(b)];
    return va > vb || (va == vb && a < b);
  });
}

// Keeps the shortest prefix of the ranking whose probabilities reach top_p, at least one token.
// Ever longer prefixes are ranked, since mostly a short one will do.
void apply_top_p(const Ops& ops, float top_p, const Work& w) {
  if (top_p >= 1.0f) return;
  const double wanted = static_cast<double>(top_p) * total_of(w.p);
  const std::size_t n = w.y.size();
  for (const std::size_t prefix : {std::size_t{64}, std::size_t{1024}, n}) {
    const std::size_t count = std::min(prefix, n);
    if (count == n) {
      sort_all(w);
    } else {
      ops.top_k(w.y.data(), n, count, w.ids.data());
    }
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      sum += static_cast<double>(w.p[static_cast<std::size_t>(w.ids[i])]);
      if (sum >= wanted) return keep_until(w.ids[i], w.y);
    }
  }
}

// First id of a tile at which `before` plus the cumulative probability exceeds `wanted`; else its
// last that may be chosen, since sums of another order may differ in the last bit.
std::size_t choose_in_tile(std::span<const float> tile, double before, double wanted) {
  std::size_t last = 0;
  for (std::size_t i = 0; i < tile.size(); ++i) {
    if (!(tile[i] > 0)) continue;
    last = i;
    before += static_cast<double>(tile[i]);
    if (before > wanted) break;
  }
  return last;
}

// Inverse CDF in id order, over whole tiles first: -1 if nothing may be chosen.
std::int32_t choose(double u, std::span<const float> p) {
  const double wanted = u * total_of(p);
  double before = 0;
  std::int32_t chosen = -1;
  for (std::size_t first = 0; first < p.size(); first += kVocabTile) {
    const std::span<const float> tile = tile_of(p, first);
    const double sum = tile_sum(tile);
    if (!(sum > 0)) continue;
    chosen = static_cast<std::int32_t>(first + choose_in_tile(tile, before, wanted));
    if (before + sum > wanted) return chosen;
    before += sum;
  }
  return chosen;  // u is so near to 1 that rounding passed the end: the last tile's last
}

}  // namespace

VocabSummary summarize_vocab(const Ops& ops, const VocabTile* tiles, std::size_t count) noexcept {
  VocabSummary s;
  s.max = kNever;
  float sum = 0;
  for (std::size_t t = 0; t < count; ++t) {
    const VocabTile& tile = tiles[t];
    if (!(tile.max - tile.max == 0.0f)) return VocabSummary{};
    const float max = tile.max > s.max ? tile.max : s.max;
    if (tile.max > s.max) s.argmax = tile.argmax;
    const float exponents[2] = {s.max - max, tile.max - max};
    float scales[2];
    ops.exp(exponents, 2, scales);
    sum = std::fma(sum, scales[0], tile.sum * scales[1]);
    s.max = max;
  }
  ops.log(&sum, 1, &s.log_sum);
  s.finite = count > 0;
  return s;
}

std::size_t sample_scratch_bytes(std::size_t vocabulary) noexcept {
  return padded(vocabulary) * (2 * sizeof(float) + sizeof(std::int32_t));
}

std::int32_t sample(const Ops& ops, const float* logits, std::size_t n, const SampleArgs& args,
                    std::byte* scratch) noexcept {
  auto* floats = reinterpret_cast<float*>(scratch);
  const Work w{{floats, n},
               {floats + padded(n), n},
               {reinterpret_cast<std::int32_t*>(floats + 2 * padded(n)), n}};
  if (n == 0 || !copy_finite(logits, w.y)) return -1;
  apply_penalties(args, w.y);
  apply_mask(args.allowed, w.y);
  std::int32_t best = -1;
  ops.top_k(w.y.data(), n, 1, &best);
  const float max = w.y[static_cast<std::size_t>(best)];
  if (!(max > kNever)) return -1;
  if (args.temperature <= 0) return best;
  apply_temperature(max, args.temperature, w.y);
  apply_top_k(ops, args.top_k, w);
  ops.exp(w.y.data(), n, w.p.data());
  apply_top_p(ops, args.top_p, w);
  for (std::size_t i = 0; i < n; ++i) {
    if (w.y[i] == kNever || w.p[i] < args.min_p) w.p[i] = 0;
  }
  return choose(args.uniform, w.p);
}

}  // namespace baton
