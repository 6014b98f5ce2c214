#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/fp_mode.h"
#include "tests/unit/kernels/support.h"

namespace baton::test {
namespace {

constexpr KvElement kElements[] = {KvElement::f32, KvElement::bf16, KvElement::f16};

float rounded(KvElement element, float x) {
  switch (element) {
    case KvElement::f32: return x;
    case KvElement::bf16: return bf16_to_f32(f32_to_bf16(x));
    case KvElement::f16: return f16_to_f32(f32_to_f16(x));
  }
  return x;
}

// One sequence in a pool whose blocks are in random order, with other blocks full of NaN.
struct Sequence {
  Sequence(Random& random, const KvLayout& kv_layout, std::size_t token_count)
      : layout(kv_layout),
        tokens(token_count),
        k(normals(random, token_count * layout.kv_heads * layout.head_dim)),
        v(normals(random, token_count * layout.kv_heads * layout.head_dim)) {
    const std::size_t blocks = (tokens + layout.block_tokens - 1) / layout.block_tokens;
    table.resize(blocks);
    std::iota(table.begin(), table.end(), 1);
    for (std::size_t i = blocks; i > 1; --i)
      std::swap(table[i - 1], table[random.between(0, i - 1)]);
    pool = std::make_unique<Buffer>((blocks + 2) * layout.block_bytes());
    std::memset(pool->data(), 0xff, layout.block_bytes());
    std::memset(pool->data() + (blocks + 1) * layout.block_bytes(), 0xff, layout.block_bytes());
    for (std::size_t t = 0; t < tokens; ++t) {
      rows.push_back({table.data(), static_cast<std::int32_t>(t)});
    }
  }

  std::size_t width() const { return layout.kv_heads * layout.head_dim; }

  void write(const Ops& ops, std::size_t layer, std::size_t begin, std::size_t end) {
    ops.kv_write({k.data(), v.data(), width(), width(), rows.data(), pool->data(), layout, layer},
                 begin, end, 0, layout.kv_heads);
  }

  KvLayout layout;
  std::size_t tokens;
  std::vector<float> k;
  std::vector<float> v;
  std::vector<std::int32_t> table;
  std::vector<KvRow> rows;
  std::unique_ptr<Buffer> pool;
};

struct Call {
  std::size_t heads;
  std::size_t layer;
  std::size_t row_begin;
  std::size_t row_end;
};

// q and out have a row for every token of the sequence.
std::vector<float> attend(const Ops& ops, const Sequence& s, const std::vector<float>& q,
                          const Call& call) {
  const std::size_t width = call.heads * s.layout.head_dim;
  std::vector<float> out(s.tokens * width);
  Buffer scratch(attention_scratch_bytes(call.heads, s.layout.kv_heads, s.layout.head_dim));
  AttentionArgs args;
  args.q = q.data();
  args.out = out.data();
  args.q_stride = args.out_stride = width;
  args.rows = s.rows.data();
  args.pool = s.pool->data();
  args.layout = s.layout;
  args.layer = call.layer;
  args.heads = call.heads;
  args.scale = 1.0f / std::sqrt(static_cast<float>(s.layout.head_dim));
  ops.attention(args, call.row_begin, call.row_end, 0, call.heads, scratch.data());
  return out;
}

// The query heads [first, end) of all, over a sequence that has only the kv-heads that they read.
std::vector<float> attend_part(const Ops& ops, const Sequence& s, const std::vector<float>& q,
                               const Call& call, std::size_t group, std::size_t first,
                               std::size_t end) {
  const std::size_t d = s.layout.head_dim;
  std::vector<float> out(s.tokens * call.heads * d, -1.0f);
  Buffer scratch(attention_scratch_bytes(end - first, s.layout.kv_heads, d));
  AttentionArgs args;
  args.q = q.data() + first * d;
  args.out = out.data() + first * d;
  args.q_stride = args.out_stride = call.heads * d;
  args.rows = s.rows.data();
  args.pool = s.pool->data();
  args.layout = s.layout;
  args.layer = call.layer;
  args.heads = end - first;
  args.group = group;
  args.skipped = first % group;
  args.scale = 1.0f / std::sqrt(static_cast<float>(d));
  ops.attention(args, call.row_begin, call.row_end, 0, end - first, scratch.data());
  return out;
}

// Plain softmax attention in double, over rounded keys and values.
double exact(const Sequence& s, const std::vector<float>& q, std::size_t heads, std::size_t row,
             std::size_t head, std::size_t dim) {
  const std::size_t d = s.layout.head_dim;
  const std::size_t kv = head / (heads / s.layout.kv_heads);
  std::vector<double> scores(row + 1);
  for (std::size_t t = 0; t <= row; ++t) {
    for (std::size_t i = 0; i < d; ++i) {
      scores[t] += double{q[row * heads * d + head * d + i]} *
                   double{rounded(s.layout.element, s.k[t * s.width() + kv * d + i])};
    }
    scores[t] /= std::sqrt(static_cast<double>(d));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  double value = 0;
  for (std::size_t t = 0; t <= row; ++t) {
    const double p = std::exp(scores[t] - max);
    sum += p;
    value += p * double{rounded(s.layout.element, s.v[t * s.width() + kv * d + dim])};
  }
  return value / sum;
}

}  // namespace

TEST_CASE("a part of the query heads, over its kv-heads alone, gives the bits of the whole") {
  const FpModeScope mode;
  Random random(12);
  for (int round = 0; round < 30; ++round) {
    KvLayout layout{2, static_cast<std::uint32_t>(random.between(1, 4)), round % 2 ? 64u : 20u,
                    round % 3 ? 16u : 32u, kElements[round % 3]};
    const std::size_t group = random.between(1, 5);
    const std::size_t heads = layout.kv_heads * group;
    const std::size_t d = layout.head_dim;
    const std::size_t tokens = random.between(1, 90);
    Sequence whole(random, layout, tokens);
    whole.write(reference(), 1, 0, tokens);
    const std::vector<float> q = normals(random, tokens * heads * d);
    const Call call{heads, 1, 0, tokens};
    const auto expected = attend(reference(), whole, q, call);
    const std::size_t first = random.between(0, heads - 1);
    const std::size_t end = random.between(first + 1, heads);
    const std::size_t kv_first = first / group;
    layout.kv_heads = static_cast<std::uint32_t>((end + group - 1) / group - kv_first);
    Sequence part(random, layout, tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
      const std::size_t from = t * whole.width() + kv_first * d;
      std::copy_n(whole.k.begin() + static_cast<std::ptrdiff_t>(from), part.width(),
                  part.k.begin() + static_cast<std::ptrdiff_t>(t * part.width()));
      std::copy_n(whole.v.begin() + static_cast<std::ptrdiff_t>(from), part.width(),
                  part.v.begin() + static_cast<std::ptrdiff_t>(t * part.width()));
    }
    part.write(reference(), 1, 0, tokens);
    std::vector<const Ops*> tables = vector_tables();
    tables.push_back(&reference());
    for (const Ops* ops : tables) {
      CAPTURE(ops->name);
      auto wanted = expected;
      for (std::size_t i = 0; i < wanted.size(); ++i) {  // nothing else is touched
        const std::size_t head = i / d % heads;
        if (head < first || head >= end) wanted[i] = -1.0f;
      }
      CHECK(first_difference(attend_part(*ops, part, q, call, group, first, end), wanted) == -1);
    }
  }
}

TEST_CASE("attention has the reference's bits for every KV type, block size and length") {
  const FpModeScope mode;
  Random random(11);
  constexpr std::uint32_t kBlocks[] = {16, 32, 64};
  constexpr std::uint32_t kDims[] = {64, 16, 8, 80, 32, 128, 10};
  for (int round = 0; round < 42; ++round) {
    KvLayout layout{2, static_cast<std::uint32_t>(random.between(1, 3)), kDims[round % 7],
                    kBlocks[round % 3], kElements[round / 3 % 3]};
    const std::size_t group = random.between(1, 5);
    const std::size_t heads = layout.kv_heads * group;
    const std::size_t tokens = round % 6 == 0 ? random.between(500, 1100) : random.between(1, 150);
    CAPTURE(static_cast<int>(layout.element));
    CAPTURE(layout.block_tokens);
    CAPTURE(layout.head_dim);
    CAPTURE(heads);
    CAPTURE(tokens);
    Sequence s(random, layout, tokens);
    s.write(reference(), 1, 0, tokens);
    const std::vector<float> q = normals(random, tokens * heads * layout.head_dim);
    const std::size_t checked = tokens > 150 ? 9 : 40;  // the last rows, for the reference is slow
    const std::size_t begin = tokens > checked ? tokens - checked : 0;
    const auto expected = attend(reference(), s, q, {heads, 1, begin, tokens});
    for (const Ops* ops : vector_tables()) {
      CAPTURE(ops->name);
      CHECK(first_difference(attend(*ops, s, q, {heads, 1, begin, tokens}), expected) == -1);
    }
    for (int probe = 0; probe < 8; ++probe) {
      const std::size_t row = random.between(begin, tokens - 1);
      const std::size_t head = random.between(0, heads - 1);
      const std::size_t dim = random.between(0, layout.head_dim - 1);
      const double wanted = exact(s, q, heads, row, head, dim);
      const double got = expected[(row * heads + head) * layout.head_dim + dim];
      const double tolerance = layout.element == KvElement::f32 ? 4e-6 : 1e-2;
      CHECK(std::abs(got - wanted) <= tolerance);
    }
  }
}

TEST_CASE("KV writes round and place elements as the layout says, on every instruction set") {
  const FpModeScope mode;
  Random random(12);
  for (const KvElement element : kElements) {
    for (const std::uint32_t dim : {64u, 24u}) {
      const KvLayout layout{2, 2, dim, 32, element};
      Sequence s(random, layout, 45);
      s.k[3] = 1e-41f;  // subnormal
      s.write(reference(), 1, 0, 45);
      for (std::size_t t = 0; t < 45; ++t) {
        for (std::size_t h = 0; h < 2; ++h) {
          for (std::size_t i = 0; i < dim; ++i) {
            const std::byte* block =
                s.pool->data() + static_cast<std::size_t>(s.table[t / 32]) * layout.block_bytes();
            const auto read = [&](const std::byte* inner, std::size_t at) {
              if (element == KvElement::f32) return reinterpret_cast<const float*>(inner)[at];
              const auto half = reinterpret_cast<const std::uint16_t*>(inner)[at];
              return element == KvElement::bf16 ? bf16_to_f32(half) : f16_to_f32(half);
            };
            const std::size_t at = t * s.width() + h * dim + i;
            CHECK(read(block + layout.k_offset(1, h), layout.k_index(t % 32, i)) ==
                  rounded(element, s.k[at]));
            CHECK(read(block + layout.v_offset(1, h), layout.v_index(t % 32, i)) ==
                  rounded(element, s.v[at]));
          }
        }
      }
      const Buffer expected = std::move(*s.pool);
      for (const Ops* ops : vector_tables()) {
        s.pool = std::make_unique<Buffer>(expected.size());
        std::memcpy(s.pool->data(), expected.data(), layout.block_bytes());
        std::memcpy(s.pool->data() + expected.size() - layout.block_bytes(),
                    expected.data() + expected.size() - layout.block_bytes(), layout.block_bytes());
        s.write(*ops, 1, 0, 45);
        CHECK(std::memcmp(s.pool->data(), expected.data(), expected.size()) == 0);
      }
    }
  }
}

TEST_CASE("a row has the same bits alone, in a chunk, and before or after later keys are written") {
  const FpModeScope mode;
  Random random(13);
  std::vector<const Ops*> tables = vector_tables();
  tables.push_back(&reference());
  for (const Ops* ops : tables) {
    for (const KvElement element : kElements) {
      const KvLayout layout{1, 1, 64, 16, element};
      const std::size_t tokens = 139;  // three tiles of keys
      Sequence s(random, layout, tokens);
      const std::vector<float> q = normals(random, tokens * 3 * 64);
      std::vector<float> one_by_one(tokens * 3 * 64);
      for (std::size_t t = 0; t < tokens; ++t) {  // as decode sees it
        s.write(*ops, 0, t, t + 1);
        const auto out = attend(*ops, s, q, {3, 0, t, t + 1});
        std::copy_n(out.begin() + static_cast<long>(t * 3 * 64), 3 * 64,
                    one_by_one.begin() + static_cast<long>(t * 3 * 64));
      }
      CHECK(first_difference(attend(*ops, s, q, {3, 0, 0, tokens}), one_by_one) == -1);
      std::vector<float> chunks(tokens * 3 * 64);
      for (std::size_t t = 0; t < tokens; t += 19) {
        const std::size_t end = std::min(tokens, t + 19);
        const auto out = attend(*ops, s, q, {3, 0, t, end});
        std::copy(out.begin() + static_cast<long>(t * 3 * 64),
                  out.begin() + static_cast<long>(end * 3 * 64),
                  chunks.begin() + static_cast<long>(t * 3 * 64));
      }
      CHECK(first_difference(chunks, one_by_one) == -1);
    }
  }
}

TEST_CASE("block sizes 16, 32 and 64 give the same bits") {
  const FpModeScope mode;
  for (const KvElement element : kElements) {
    std::vector<std::vector<float>> results;
    for (const std::uint32_t block : {16u, 32u, 64u}) {
      Random random(14);
      const KvLayout layout{1, 1, 32, block, element};
      Sequence s(random, layout, 700);
      s.write(ops(), 0, 0, 700);
      Random queries(15);
      const std::vector<float> q = normals(queries, 700 * 2 * 32);
      // The block order differs between sizes; k and v were drawn before it.
      results.push_back(attend(ops(), s, q, {2, 0, 0, 700}));
    }
    CHECK(first_difference(results[0], results[1]) == -1);
    CHECK(first_difference(results[0], results[2]) == -1);
  }
}

TEST_CASE("any range of rows and query heads may be given to any thread") {
  const FpModeScope mode;
  Random random(16);
  const KvLayout layout{1, 2, 64, 16, KvElement::bf16};
  Sequence s(random, layout, 90);
  s.write(ops(), 0, 0, 90);
  const std::vector<float> q = normals(random, 90 * 8 * 64);
  const auto expected = attend(ops(), s, q, {8, 0, 0, 90});
  std::vector<float> out(expected.size());
  Buffer scratch(attention_scratch_bytes(8, 2, 64));
  AttentionArgs args;
  args.q = q.data();
  args.out = out.data();
  args.q_stride = args.out_stride = 8 * 64;
  args.rows = s.rows.data();
  args.pool = s.pool->data();
  args.layout = layout;
  args.heads = 8;
  args.scale = 0.125f;
  for (std::size_t row = 0; row < 90;) {
    const std::size_t row_end = std::min<std::size_t>(90, row + random.between(1, 11));
    for (std::size_t head = 0; head < 8;) {
      const std::size_t head_end = std::min<std::size_t>(8, head + random.between(1, 5));
      ops().attention(args, row, row_end, head, head_end, scratch.data());
      head = head_end;
    }
    row = row_end;
  }
  CHECK(first_difference(out, expected) == -1);
}

TEST_CASE("keys beyond a row's position do not matter, even if they are NaN") {
  const FpModeScope mode;
  Random random(17);
  std::vector<const Ops*> tables = vector_tables();
  tables.push_back(&reference());
  for (const Ops* ops : tables) {
    for (const KvElement element : kElements) {
      const KvLayout layout{1, 1, 16, 16, element};
      Sequence s(random, layout, 30);
      s.write(*ops, 0, 0, 30);
      const std::vector<float> q = normals(random, 30 * 16);
      const auto before = attend(*ops, s, q, {1, 0, 0, 21});
      for (std::size_t i = 21 * 16; i < 30 * 16; ++i) s.k[i] = s.v[i] = std::nanf("");
      s.write(*ops, 0, 21, 30);
      CHECK(first_difference(attend(*ops, s, q, {1, 0, 0, 21}), before) == -1);
    }
  }
}

}  // namespace baton::test
