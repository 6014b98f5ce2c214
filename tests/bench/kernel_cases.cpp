#include "tests/bench/kernel_cases.h"

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/fp_mode.h"
#include "kernels/sampling.h"
#include "tests/bench/timing.h"

namespace baton::bench {
namespace {

constexpr std::size_t kHidden = 576;
constexpr std::size_t kFfn = 1536;
constexpr std::size_t kHeads = 9;
constexpr std::size_t kKvHeads = 3;
constexpr std::size_t kHeadDim = 64;
constexpr std::size_t kVocab = 49152;
constexpr std::size_t kLayers = 30;

struct Free {
  void operator()(std::byte* p) const { std::free(p); }
};

// Bytes at a multiple of 64.
class Bytes {
 public:
  explicit Bytes(std::size_t size)
      : data_(static_cast<std::byte*>(std::aligned_alloc(64, (size + 127) / 64 * 64))) {
    std::memset(data_.get(), 0, size);
  }
  std::byte* data() const { return data_.get(); }
  float* floats() const { return reinterpret_cast<float*>(data_.get()); }

 private:
  std::unique_ptr<std::byte, Free> data_;
};

class Random {
 public:
  std::uint32_t bits() {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>(state_ >> 32);
  }
  float unit() { return static_cast<float>(bits() >> 8) * 0x1p-24f - 0.5f; }

 private:
  std::uint64_t state_ = 1;
};

struct Matrix {
  Matrix(Random& random, DType type, std::size_t rows, std::size_t cols)
      : bytes(packed_bytes(type, rows, cols)), view{type, rows, cols, bytes.data()} {
    const std::size_t size = packed_bytes(type, rows, cols);
    const std::size_t quants = type == DType::q8_0 ? 512 : 256;
    const auto step = static_cast<std::size_t>(format_info(type).block_bytes) * kTileRows;
    for (std::size_t at = 0; at < size; at += step) {
      for (std::size_t i = 0; i < quants; i += 4) {
        const std::uint32_t word = random.bits();
        std::memcpy(bytes.data() + at + i, &word, 4);
      }
      for (std::size_t i = quants; i < step; i += 2) {
        const std::uint16_t half = f32_to_f16(0.01f + 0.001f * random.unit());
        std::memcpy(bytes.data() + at + i, &half, 2);
      }
    }
  }
  Bytes bytes;
  PackedMatrix view;
};

bool wanted(const CaseOptions& options, const std::string& name) {
  return name.find(options.filter) != std::string::npos;
}

// Runs all matrices one after another with the given rows, a barrier between them.
void run_linear(const Ops& ops, Team& team, const CaseOptions& options, const std::string& name,
                const std::vector<Matrix>& matrices, std::size_t rows, Report& report) {
  if (!wanted(options, name)) return;
  const std::size_t cols_max = kFfn;
  Random random;
  Bytes x(rows * cols_max * sizeof(float));
  for (std::size_t i = 0; i < rows * cols_max; ++i) x.floats()[i] = random.unit();
  const Bytes narrow(quant_bytes(rows, kHidden));
  const Bytes wide(quant_bytes(rows, kFfn));
  const QuantRows narrow_rows{narrow.data(), rows, kHidden};
  const QuantRows wide_rows{wide.data(), rows, kFfn};
  {
    const FpModeScope mode;
    ops.quantize(x.floats(), kHidden, 0, rows, 0, kHidden / kQuantBlock, narrow_rows);
    ops.quantize(x.floats(), kFfn, 0, rows, 0, kFfn / kQuantBlock, wide_rows);
  }
  std::size_t outputs = 0;
  Line line;
  for (const Matrix& m : matrices) {
    outputs = std::max(outputs, m.view.rows);
    line.bytes += static_cast<double>(packed_bytes(m.view.type, m.view.rows, m.view.cols));
    line.operations += 2.0 * static_cast<double>(m.view.rows * m.view.cols * rows);
  }
  const Bytes out(rows * outputs * sizeof(float));
  std::vector<Bytes> scratch;
  for (int i = 0; i < team.size(); ++i) scratch.emplace_back(linear_scratch_bytes(cols_max));
  const Timing t = measure(options.quick ? 3 : 9, options.quick ? 0.02 : 0.2, [&] {
    team.run([&](int thread, int n) {
      for (const Matrix& m : matrices) {
        const Share tiles = share(m.view.tiles(), thread, n);
        ops.linear_q8(m.view, m.view.cols == kFfn ? wide_rows : narrow_rows,
                      {out.floats(), m.view.rows, false}, tiles.begin, tiles.end,
                      scratch[static_cast<std::size_t>(thread)].data());
        team.barrier();
      }
    });
  });
  line.name = name;
  line.threads = team.size();
  line.best_s = t.best_s;
  line.median_s = t.median_s;
  report.lines.push_back(line);
}

std::vector<Matrix> layer_matrices(DType type) {
  Random random;
  std::vector<Matrix> all;
  for (std::size_t i = 0; i < kLayers; ++i) {
    all.emplace_back(random, type, (kHeads + 2 * kKvHeads) * kHeadDim, kHidden);
    all.emplace_back(random, type, kHidden, kHidden);
    all.emplace_back(random, type, 2 * kFfn, kHidden);
    all.emplace_back(random, type, kHidden, kFfn);
  }
  return all;
}

// A KV pool with `sequences` of `context` tokens, blocks interleaved among them.
struct Cache {
  Cache(std::size_t sequences, std::size_t context_tokens)
      : layout{static_cast<std::uint32_t>(kLayers), kKvHeads, kHeadDim, 16, KvElement::bf16},
        context(context_tokens),
        blocks_each((context + 15) / 16),
        pool(sequences * blocks_each * layout.block_bytes()),
        table(sequences * blocks_each) {
    Random random;
    auto* halves = reinterpret_cast<std::uint16_t*>(pool.data());
    const std::size_t count = sequences * blocks_each * layout.block_bytes() / 2;
    for (std::size_t i = 0; i < count; ++i) halves[i] = f32_to_bf16(random.unit());
    for (std::size_t s = 0; s < sequences; ++s) {
      for (std::size_t b = 0; b < blocks_each; ++b) {
        table[s * blocks_each + b] = static_cast<std::int32_t>(b * sequences + s);
      }
    }
  }
  KvLayout layout;
  std::size_t context;
  std::size_t blocks_each;
  Bytes pool;
  std::vector<std::int32_t> table;
};

// Attention of all layers for the given rows; items are (row chunk, kv-head).
void run_attention(const Ops& ops, Team& team, const CaseOptions& options, Line line,
                   const Cache& cache, const std::vector<KvRow>& rows, std::size_t chunk,
                   Report& report) {
  Random random;
  const std::size_t width = kHeads * kHeadDim;
  const Bytes q(rows.size() * width * sizeof(float));
  for (std::size_t i = 0; i < rows.size() * width; ++i) q.floats()[i] = random.unit() * 4;
  const Bytes out(rows.size() * width * sizeof(float));
  std::vector<Bytes> scratch;
  for (int i = 0; i < team.size(); ++i) {
    scratch.emplace_back(attention_scratch_bytes(kHeads, kKvHeads, kHeadDim));
  }
  const std::size_t chunks = (rows.size() + chunk - 1) / chunk;
  const Timing t = measure(options.quick ? 3 : 7, options.quick ? 0.02 : 0.2, [&] {
    team.run([&](int thread, int n) {
      for (std::size_t layer = 0; layer < kLayers; ++layer) {
        AttentionArgs args;
        args.q = q.floats();
        args.out = out.floats();
        args.q_stride = width;
        args.out_stride = width;
        args.rows = rows.data();
        args.pool = cache.pool.data();
        args.layout = cache.layout;
        args.layer = layer;
        args.heads = kHeads;
        args.scale = 0.125f;
        const auto stride = static_cast<std::size_t>(n);
        for (auto i = static_cast<std::size_t>(thread); i < chunks * kKvHeads; i += stride) {
          const std::size_t row = i / kKvHeads * chunk;
          const std::size_t head = i % kKvHeads * (kHeads / kKvHeads);
          ops.attention(args, row, std::min(rows.size(), row + chunk), head,
                        head + kHeads / kKvHeads, scratch[static_cast<std::size_t>(thread)].data());
        }
        team.barrier();
      }
    });
  });
  double keys = 0;
  for (const KvRow& row : rows) keys += row.position + 1;
  line.operations = keys * static_cast<double>(kHeads * kHeadDim * kLayers) * 4;
  line.integer = false;
  line.threads = team.size();
  line.best_s = t.best_s;
  line.median_s = t.median_s;
  report.lines.push_back(line);
}

}  // namespace

void run_linear_cases(const Ops& ops, Team& team, const CaseOptions& options, Report& report) {
  const bool slow = std::strcmp(ops.name, "scalar") == 0;
  for (const DType type : {DType::q4_1, DType::q8_0}) {
    const std::vector<Matrix> layers = layer_matrices(type);
    for (const std::size_t rows : {1, 4, 8, 16, 32, 64, 512}) {
      if (slow && rows > 1) break;
      run_linear(ops, team, options,
                 std::string("layers ") + format_info(type).name + " rows " + std::to_string(rows),
                 layers, rows, report);
    }
  }
  Random random;
  std::vector<Matrix> head;
  head.emplace_back(random, DType::q8_0, kVocab, kHidden);
  for (const std::size_t rows : {1, 4, 8, 16, 32, 64}) {
    if (slow && rows > 1) break;
    run_linear(ops, team, options, "output Q8_0 rows " + std::to_string(rows), head, rows, report);
  }
}

void run_attention_cases(const Ops& ops, Team& team, const CaseOptions& options, Report& report) {
  const bool slow = std::strcmp(ops.name, "scalar") == 0;
  for (const std::size_t context : {128, 1024, 4096}) {
    for (const std::size_t batch : {1, 8, 32}) {
      Line line;
      line.name =
          "attention decode batch " + std::to_string(batch) + " context " + std::to_string(context);
      if (!wanted(options, line.name) || batch * context > 40000 || (slow && batch > 1)) continue;
      const Cache cache(batch, context);
      std::vector<KvRow> rows;
      for (std::size_t s = 0; s < batch; ++s) {
        rows.push_back(
            {&cache.table[s * cache.blocks_each], static_cast<std::int32_t>(context - 1)});
      }
      line.bytes = static_cast<double>(cache.layout.block_bytes() / 16 * context * batch);
      run_attention(ops, team, options, line, cache, rows, 1, report);
    }
  }
  for (const std::size_t context : {128, 512, 2048, 4096}) {
    Line line;
    line.name = "attention prefill " + std::to_string(context);
    if (!wanted(options, line.name) || (slow && context > 128)) continue;
    const Cache cache(1, context);
    std::vector<KvRow> rows;
    for (std::size_t i = 0; i < context; ++i) {
      rows.push_back({cache.table.data(), static_cast<std::int32_t>(i)});
    }
    line.bytes = static_cast<double>(cache.layout.block_bytes() / 16 * context);
    run_attention(ops, team, options, line, cache, rows, 16, report);
  }
}

void run_vocabulary_cases(const Ops& ops, Team& team, const CaseOptions& options, Report& report) {
  Random random;
  const Bytes logits(kVocab * sizeof(float));
  for (std::size_t i = 0; i < kVocab; ++i) logits.floats()[i] = random.unit() * 20;
  const auto add = [&](const std::string& name, auto&& work) {
    if (team.size() != 1 || !wanted(options, name)) return;
    const FpModeScope mode;
    const Timing t = measure(options.quick ? 3 : 9, 0.02, work);
    report.lines.push_back({name, 1, kVocab * sizeof(float), 0, false, t.best_s, t.median_s});
  };
  std::vector<VocabTile> tiles(kVocab / kVocabTile);
  add("log-softmax of one row", [&] {
    ops.vocab_tiles(logits.floats(), kVocab, 0, tiles.size(), tiles.data());
    summarize_vocab(ops, tiles.data(), tiles.size());
  });
  const Bytes scratch(sample_scratch_bytes(kVocab));
  SampleArgs args;
  const auto draw = [&] { sample(ops, logits.floats(), kVocab, args, scratch.data()); };
  add("sample greedy", draw);
  args.temperature = 0.8f;
  args.uniform = 0.4;
  add("sample temperature", draw);
  args.top_k = 40;
  add("sample temperature, top-k 40", draw);
  args.top_k = 0;
  args.top_p = 0.95f;
  add("sample temperature, top-p 0.95", draw);
}

}  // namespace baton::bench
