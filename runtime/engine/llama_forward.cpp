#include "runtime/engine/llama_forward.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/fp_mode.h"
#include "kernels/rope.h"
#include "runtime/base/check.h"
#include "runtime/engine/scratch_plan.h"

namespace baton {
namespace {

// Up to this many rows every thread computes all norms for itself: that is cheaper than to meet.
constexpr std::size_t kRowsAlone = 4;
// Rows that the wide layers between gate and down take at a time, so that they stay in the cache.
constexpr std::size_t kFfnRows = 40 * kQuantRows;
// ... and columns: a few tiles, whose weights are read once for all of these rows. More columns
// where there are fewer rows.
constexpr std::size_t kFfnColumns = 2 * kQuantBlock;

// Whether the query heads that any rank has of any kv-head fill whole blocks of 32 columns.
bool heads_fill_blocks(const ModelConfig& config, uint32_t tensor_parallel) {
  const auto whole = [&](uint32_t heads) {
    return std::size_t{heads} * config.head_dim % kQuantBlock == 0;
  };
  bool all = whole(config.heads / config.kv_heads);
  for (uint32_t r = 0; r < tensor_parallel; ++r) {
    all = all && whole(query_heads_of(config.heads, tensor_parallel, r).begin);
  }
  return all;
}

// Tiles [begin, end) of a matrix as a matrix of their own.
PackedMatrix tiles_of(const PackedMatrix& matrix, std::size_t begin, std::size_t end) {
  PackedMatrix out = matrix;
  out.data += begin * packed_tile_bytes(matrix.type, matrix.cols);
  out.rows = std::min(end * kTileRows, matrix.rows) - begin * kTileRows;
  return out;
}

// Items of attention for each thread from which on a thread may hold one more than it works on.
constexpr std::size_t kItemsPlenty = 4;

template <class Input>
Input first_rows(Input input, std::size_t rows) {
  input.rows = rows;
  input.quant.rows = rows;
  return input;
}

}  // namespace

LlamaForward::LlamaForward(const LlamaWeights& weights, const KvStore& store, StepBuffers& buffers,
                           const ForwardOptions& options)
    : weights_(&weights),
      store_(store),
      buffers_(buffers),
      part_(weights_->part()),
      ops_(*options.ops),
      mode_(options.mode),
      threads_(options.threads),
      limits_(options.limits),
      hidden_(weights_->config().hidden),
      ffn_(weights_->config().ffn),
      head_dim_(weights_->config().head_dim),
      group_(weights_->config().heads / weights_->config().kv_heads),
      attended_width_(std::size_t{weights_->config().heads} * head_dim_),
      query_width_(part_.query_heads.size() * head_dim_),
      kv_width_(part_.kv_heads.size() * head_dim_),
      qkv_width_(query_width_ + 2 * kv_width_),
      heads_fill_blocks_(heads_fill_blocks(weights_->config(), part_.of.tensor_parallel)),
      x_(buffers.residual),
      attended_(buffers.attended),
      activated_(buffers.activated),
      gate_(static_cast<std::size_t>(options.threads)),
      up_(static_cast<std::size_t>(options.threads)),
      alone_(static_cast<std::size_t>(options.threads)),
      scratch_(static_cast<std::size_t>(options.threads)),
      next_item_(new std::atomic<std::size_t>[weights_->layers().size()]) {}

Result<std::unique_ptr<LlamaForward>> LlamaForward::create(const LlamaWeights& weights,
                                                           const KvStore& store,
                                                           StepBuffers& buffers,
                                                           const ForwardOptions& options) {
  std::unique_ptr<LlamaForward> forward(new LlamaForward(weights, store, buffers, options));
  Result<MappedMemory> memory = forward->allocate();
  if (!memory) return memory.error();
  forward->memory_ = std::move(*memory);
  RopeParams rope;
  rope.rope_dim = forward->head_dim_;
  rope.base = forward->weights_->config().rope_base;
  const FpModeScope fp_mode;  // as on the compute threads
  fill_rope_table(rope, 0, options.limits.context_max, forward->rope_);
  return forward;
}

Result<MappedMemory> LlamaForward::allocate() {
  const std::size_t tokens = limits_.tokens_max;
  ScratchPlan plan;
  plan.add(qkv_, tokens * qkv_width_);
  plan.add(rope_, limits_.context_max * rope_row_floats(head_dim_));
  normed_.plan(plan, tokens, hidden_);
  if (!heads_fill_blocks_ && attended_width_ % kQuantBlock == 0) {  // each rank quantises them all
    plan.add(attended_.quant.data, quant_bytes(tokens, attended_width_));
  }
  const std::size_t bytes =
      std::max(linear_scratch_bytes(std::max({hidden_, ffn_, attended_width_})),
               attention_scratch_bytes(query_width_ / head_dim_, kv_width_ / head_dim_, head_dim_));
  for (std::size_t i = 0; i < alone_.size(); ++i) {
    alone_[i].plan(plan, kRowsAlone, hidden_);
    plan.add(scratch_[i], bytes);
    plan.add(gate_[i], std::min(kFfnRows, tokens) * kFfnColumns);
    plan.add(up_[i], std::min(kFfnRows, tokens) * kFfnColumns);
  }
  Result<MappedMemory> memory =
      plan.allocate({"the working memory of a step", "lower --max-num-batched-tokens"});
  normed_.f32 = normed_.own;
  for (OwnedInput& input : alone_) input.f32 = input.own;
  return memory;
}

void LlamaForward::begin_step(const LlamaWeights& weights) {
  weights_ = &weights;
  for (std::size_t i = 0; i < weights_->layers().size(); ++i) {
    next_item_[i].store(0, std::memory_order_relaxed);
  }
}

void LlamaForward::run(const StepRows& step, const TeamMember& me) {
  zero_fresh_blocks(step, me);
  const uint32_t stages = part_.of.pipeline_parallel;
  for (uint32_t stage = 0; stage < stages && !me.group.broken(); ++stage) {
    if (stage == part_.of.stage()) run_stage(step, me);
    if (stages > 1) me.meet_instance();  // the residual stream is handed on
  }
}

void LlamaForward::run_stage(const StepRows& step, const TeamMember& me) {
  if (part_.first_stage()) embed(step, me);
  for (std::size_t layer = 0; layer < weights_->layers().size() && !me.group.broken(); ++layer) {
    attention(layer, step, me);
    feed_forward(layer, step.size(), me);
  }
}

void LlamaForward::zero_fresh_blocks(const StepRows& step, const TeamMember& me) {
  const Share mine = me.share_of(step.fresh_blocks().size());
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    const std::span<std::byte> block = store_.block(step.fresh_blocks()[i]);
    std::memset(block.data(), 0, block.size());
  }
}

// Each rank has some rows of the embedding: it looks up the tokens that are in them.
void LlamaForward::embed(const StepRows& step, const TeamMember& me) {
  const Share mine = me.share_of(step.size());
  for (std::size_t i = mine.begin; i < mine.end; ++i) {
    const auto token = static_cast<uint32_t>(step.tokens()[i]);
    if (!part_.vocab_rows.contains(token)) continue;
    ops_.embed(weights_->embedding(), token - part_.vocab_rows.begin, x_ + i * hidden_);
  }
  me.meet_stage();
}

void LlamaForward::attention(std::size_t layer, const StepRows& step, const TeamMember& me) {
  const LlamaLayer& w = weights_->layers()[layer];
  const LinearInput in = norm_rows(w.attention_norm, step.size(), w.qkv.reads_quant(mode_), me);
  const Share tiles = me.share_of(w.qkv.tiles());
  w.qkv.run(ops_, mode_, in, {qkv_, qkv_width_, false}, tiles.begin, tiles.end,
            scratch_[static_cast<std::size_t>(me.thread)]);
  me.meet();
  attend_all(layer, step, me);
  add_linear(w.attention_out, first_rows(attended_, step.size()), me);
}

// x = x + rows . matrix
void LlamaForward::add_linear(const PackedMatrix& matrix, const LinearInput& in,
                              const TeamMember& me) {
  const Share tiles = me.share_of(matrix.tiles());
  if (tiles.begin < tiles.end) {
    run_linear(ops_, mode_, matrix, in, {x_ + part_.hidden_rows.begin, hidden_, true}, tiles.begin,
               tiles.end, scratch_[static_cast<std::size_t>(me.thread)]);
  }
  me.meet_stage();
}

LinearInput LlamaForward::norm_rows(const std::vector<float>& weight, std::size_t rows,
                                    bool quantize, const TeamMember& me) {
  const bool alone = rows <= kRowsAlone;
  const OwnedInput out =
      first_rows(alone ? alone_[static_cast<std::size_t>(me.thread)] : normed_, rows);
  const Share mine = alone ? Share{0, rows} : me.share_of(rows);
  for (std::size_t r = mine.begin; r < mine.end; ++r) {
    ops_.rms_norm(x_ + r * hidden_, weight.data(), hidden_, weights_->config().norm_eps,
                  out.own + r * hidden_);
  }
  if (quantize && mine.begin < mine.end) {
    ops_.quantize(out.f32, out.stride, mine.begin, mine.end, 0, hidden_ / kQuantBlock, out.quant);
  }
  if (!alone) me.meet();
  return out;
}

// Attention of all tokens: threads take (run of tokens, kv-head) items, the longest first. Where
// tokens may be of one sequence all keys and values are written before anybody reads them; where
// each has a sequence of its own, whoever takes an item writes them too.
void LlamaForward::attend_all(std::size_t layer, const StepRows& step, const TeamMember& me) {
  const std::size_t kv_heads = kv_width_ / head_dim_;
  if (!step.independent()) {
    const Share mine = me.share_of(step.size());
    rotate_and_write(layer, step,
                     {static_cast<uint32_t>(mine.begin), static_cast<uint32_t>(mine.end)},
                     {0, kv_heads});
    me.meet();
  }
  // Where there are plenty, a thread takes an item before it has finished the one before, so that
  // the keys of the next are on their way.
  const std::size_t items = step.runs().size() * kv_heads;
  const bool plenty = step.independent() && items >= kItemsPlenty * threads_;
  const auto item = [&](std::size_t i) -> AttentionItem {
    return {step.runs()[step.runs().size() - 1 - i / kv_heads], i % kv_heads};
  };
  std::atomic<std::size_t>& next_item = next_item_[layer];
  for (std::size_t i = next_item++; i < items;) {
    const std::size_t next = plenty ? next_item++ : items;
    const AttentionItem now = item(i);
    if (step.independent()) {
      rotate_and_write(layer, step, now.tokens, {now.kv_head, now.kv_head + 1});
    }
    attend(layer, step, now, next < items ? std::optional(item(next)) : std::nullopt, me.thread);
    i = plenty ? next : next_item++;
  }
  gather_attended(layer, step, me);
}

void LlamaForward::gather_attended(std::size_t layer, const StepRows& step, const TeamMember& me) {
  me.meet_stage();
  const bool quantize = reads_quant(weights_->layers()[layer].attention_out, mode_);
  if (quantize && !heads_fill_blocks_) {  // attend() could not
    const Share mine = me.share_of(step.size());
    ops_.quantize(attended_.f32, attended_.stride, mine.begin, mine.end, 0,
                  attended_width_ / kQuantBlock, attended_.quant);
    me.meet();
  }
}

Range LlamaForward::own_heads(std::size_t kv_head) const {
  const uint32_t skipped = part_.query_heads_skipped(weights_->config());
  const auto group = static_cast<uint32_t>(group_);
  const auto first = static_cast<uint32_t>(kv_head) * group;
  return {std::max(first, skipped) - skipped,
          std::min(first + group - skipped, part_.query_heads.size())};
}

void LlamaForward::rotate_and_write(std::size_t layer, const StepRows& step, TokenRun tokens,
                                    Share kv_heads) {
  const std::size_t count = kv_heads.end - kv_heads.begin;
  const std::size_t first_head = own_heads(kv_heads.begin).begin;
  const std::size_t heads = own_heads(kv_heads.end - 1).end - first_head;
  for (std::size_t t = tokens.begin; t < tokens.end; ++t) {
    float* row = qkv_ + t * qkv_width_;
    const float* table =
        rope_ + static_cast<std::size_t>(step.kv()[t].position) * rope_row_floats(head_dim_);
    ops_.rope(row + first_head * head_dim_, heads, head_dim_, head_dim_, table);
    ops_.rope(row + query_width_ + kv_heads.begin * head_dim_, count, head_dim_, head_dim_, table);
  }
  KvWriteArgs args;
  args.k = qkv_ + query_width_;
  args.v = qkv_ + query_width_ + kv_width_;
  args.k_stride = qkv_width_;
  args.v_stride = qkv_width_;
  args.rows = step.kv().data();
  args.pool = store_.pool();
  args.layout = store_.layout();
  args.layer = layer;
  ops_.kv_write(args, tokens.begin, tokens.end, kv_heads.begin, kv_heads.end);
}

void LlamaForward::attend(std::size_t layer, const StepRows& step, const AttentionItem& now,
                          const std::optional<AttentionItem>& next, int thread) {
  const TokenRun tokens = now.tokens;
  const std::size_t first_column = part_.query_heads.begin * head_dim_;
  AttentionArgs args;
  args.q = qkv_;
  args.out = attended_.own + first_column;
  args.q_stride = qkv_width_;
  args.out_stride = attended_width_;
  args.rows = step.kv().data();
  args.pool = store_.pool();
  args.layout = store_.layout();
  args.layer = layer;
  args.heads = query_width_ / head_dim_;
  args.group = group_;
  args.skipped = part_.query_heads_skipped(weights_->config());
  args.scale = 1.0f / std::sqrt(static_cast<float>(head_dim_));
  if (next) {
    args.next_row = args.rows + next->tokens.begin;
    args.next_kv_head = next->kv_head;
  }
  const Range heads = own_heads(now.kv_head);
  ops_.attention(args, tokens.begin, tokens.end, heads.begin, heads.end,
                 scratch_[static_cast<std::size_t>(thread)]);
  if (heads_fill_blocks_ && reads_quant(weights_->layers()[layer].attention_out, mode_)) {
    ops_.quantize(attended_.f32, attended_.stride, tokens.begin, tokens.end,
                  (first_column + heads.begin * head_dim_) / kQuantBlock,
                  (first_column + heads.end * head_dim_) / kQuantBlock, attended_.quant);
  }
}

// x = x + down(silu(gate(h)) * up(h)), h = norm(x). A thread takes the same columns of gate, up and
// what `down` reads, in blocks of 32, so that nobody waits in between.
void LlamaForward::feed_forward(std::size_t layer, std::size_t rows, const TeamMember& me) {
  const LlamaLayer& w = weights_->layers()[layer];
  const bool quantize = reads_quant(w.gate, mode_) || reads_quant(w.up, mode_);
  const LinearInput in = norm_rows(w.ffn_norm, rows, quantize, me);
  // Of the blocks of this rank; counted within the whole width.
  const std::size_t first = part_.ffn_rows.begin / kQuantBlock;
  const Share own = me.share_of((part_.ffn_rows.size() + kQuantBlock - 1) / kQuantBlock);
  const Share blocks{first + own.begin, first + own.end};
  if (blocks.begin < blocks.end) {
    for (std::size_t row = 0; row < rows; row += kFfnRows) {
      gate_up(w, in, row, std::min(kFfnRows, rows - row), blocks, me.thread);
    }
  }
  me.meet_stage();
  add_linear(w.down, first_rows(activated_, rows), me);
}

void LlamaForward::gate_up(const LlamaLayer& layer, const LinearInput& in, std::size_t row,
                           std::size_t count, Share blocks, int thread) {
  constexpr std::size_t kTilesPerBlock = kQuantBlock / kTileRows;
  const LinearInput part{in.f32 + row * in.stride, in.stride, quant_view(in.quant, row, count),
                         count};
  const std::size_t first_block = part_.ffn_rows.begin / kQuantBlock;  // of this rank's matrices
  const auto t = static_cast<std::size_t>(thread);
  const bool quantize = reads_quant(layer.down, mode_);
  const std::size_t room = std::min<std::size_t>(kFfnRows, limits_.tokens_max) * kFfnColumns;
  const std::size_t at_once = std::min(room / (count * kQuantBlock), blocks.end - blocks.begin);
  const std::size_t stride = at_once * kQuantBlock;
  for (std::size_t block = blocks.begin; block < blocks.end; block += at_once) {
    const std::size_t stop = std::min(block + at_once, blocks.end);
    const std::size_t begin = (block - first_block) * kTilesPerBlock;
    const std::size_t end = std::min((stop - first_block) * kTilesPerBlock, layer.gate.tiles());
    run_linear(ops_, mode_, tiles_of(layer.gate, begin, end), part, {gate_[t], stride, false}, 0,
               end - begin, scratch_[t]);
    run_linear(ops_, mode_, tiles_of(layer.up, begin, end), part, {up_[t], stride, false}, 0,
               end - begin, scratch_[t]);
    const std::size_t column = block * kQuantBlock;
    const std::size_t columns = std::min(stop * kQuantBlock, ffn_) - column;
    for (std::size_t r = 0; r < count; ++r) {
      const float* gate = gate_[t] + r * stride;
      float* out = quantize ? gate_[t] + r * stride : activated_.own + (row + r) * ffn_ + column;
      ops_.silu_mul(gate, up_[t] + r * stride, columns, out);
    }
    if (quantize) {  // records of a group follow each other along the columns
      QuantRows target = quant_view(activated_.quant, row, count);
      target.data += block * kQuantRecordBytes;
      ops_.quantize(gate_[t], stride, 0, count, 0, stop - block, target);
    }
  }
}

}  // namespace baton
