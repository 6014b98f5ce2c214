#include "runtime/engine/llama_weights.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "runtime/base/hash.h"

namespace baton {
namespace {

DType dtype_of(TensorType type) {
  switch (type) {
    case TensorType::f32: return DType::f32;
    case TensorType::f16: return DType::f16;
    case TensorType::q4_0: return DType::q4_0;
    case TensorType::q4_1: return DType::q4_1;
    case TensorType::q8_0: return DType::q8_0;
    case TensorType::bf16: return DType::bf16;
  }
  check_failed(__FILE__, __LINE__, "type", "no such tensor type");
}

std::size_t align64(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

}  // namespace

// Walks over the model twice: to learn what there is and how large it gets, then to pack it.
class LlamaWeights::Loader {
 public:
  Loader(const ModelFile& file, const PartOf& of) : file_(file), of_(of) {}

  Result<std::shared_ptr<const LlamaWeights>> load(Compute& compute, const Progress& progress);

 private:
  struct Job {                // tiles of one matrix; small enough for a smooth progress bar
    const std::byte* source;  // first row of the matrix, in the file
    DType type;
    std::size_t rows;
    std::size_t cols;
    std::size_t offset;  // of the matrix in memory
    std::size_t tile_begin;
    std::size_t tile_end;
    std::size_t bytes;  // packed
  };

  const TensorInfo& tensor(const std::string& name) const;
  // Plans some rows of a matrix; its data pointer is an offset until place() knows the base.
  PackedMatrix matrix(const std::string& name, const Range& rows);
  std::vector<float> vector(const std::string& name) const;
  void plan_layer(uint32_t index);
  void plan_model();
  void place(PackedMatrix& matrix) const;
  void place_all();
  void pack(Team& team, const Progress& progress);

  const ModelFile& file_;
  const PartOf of_;
  std::shared_ptr<LlamaWeights> out_{new LlamaWeights};
  std::vector<PackedMatrix> qkv_;  // three a layer, until place_all()
  std::vector<Job> jobs_;
  std::size_t bytes_ = 0;
};

const TensorInfo& LlamaWeights::Loader::tensor(const std::string& name) const {
  const TensorInfo* found = file_.tensor(name);
  CHECK_MSG(found != nullptr, name.c_str());  // read_model_config saw it
  return *found;
}

PackedMatrix LlamaWeights::Loader::matrix(const std::string& name, const Range& rows) {
  const TensorInfo& info = tensor(name);
  PackedMatrix out;
  out.type = dtype_of(info.type);
  out.rows = rows.size();
  out.cols = info.columns();
  const std::size_t row = row_bytes(out.type, out.cols);
  CHECK(info.data.size() == row * info.rows() && rows.end <= info.rows());
  const std::byte* source = info.data.data() + rows.begin * row;
  constexpr std::size_t kTilesPerJob = 64;
  const std::size_t tile_bytes = packed_tile_bytes(out.type, out.cols);
  for (std::size_t tile = 0; tile < out.tiles(); tile += kTilesPerJob) {
    const std::size_t end = std::min(tile + kTilesPerJob, out.tiles());
    jobs_.push_back(
        {source, out.type, out.rows, out.cols, bytes_, tile, end, (end - tile) * tile_bytes});
  }
  // An offset until the base is known; never dereferenced as such.
  out.data = reinterpret_cast<const std::byte*>(bytes_);
  bytes_ = align64(bytes_ + packed_bytes(out.type, out.rows, out.cols));
  return out;
}

std::vector<float> LlamaWeights::Loader::vector(const std::string& name) const {
  const TensorInfo& info = tensor(name);
  std::vector<float> out(info.elements());
  dequantize_row(dtype_of(info.type), info.data.data(), out.size(), out.data());
  return out;
}

void LlamaWeights::Loader::plan_layer(uint32_t index) {
  const ModelPart& part = out_->part_;
  const uint32_t dim = out_->config_.head_dim;
  const Range queries{part.query_heads.begin * dim, part.query_heads.end * dim};
  const Range keys{part.kv_heads.begin * dim, part.kv_heads.end * dim};
  LlamaLayer& layer = out_->layers_.emplace_back();
  layer.attention_norm = vector(layer_tensor(index, "attn_norm"));
  qkv_.push_back(matrix(layer_tensor(index, "attn_q"), queries));
  qkv_.push_back(matrix(layer_tensor(index, "attn_k"), keys));
  qkv_.push_back(matrix(layer_tensor(index, "attn_v"), keys));
  layer.attention_out = matrix(layer_tensor(index, "attn_output"), part.hidden_rows);
  layer.ffn_norm = vector(layer_tensor(index, "ffn_norm"));
  layer.gate = matrix(layer_tensor(index, "ffn_gate"), part.ffn_rows);
  layer.up = matrix(layer_tensor(index, "ffn_up"), part.ffn_rows);
  layer.down = matrix(layer_tensor(index, "ffn_down"), part.hidden_rows);
}

// Rows of the embedding and the output matrix only where they are read.
void LlamaWeights::Loader::plan_model() {
  const ModelPart& part = out_->part_;
  const bool tied = out_->config_.tied;
  const Range none{};
  out_->embedding_ = matrix("token_embd.weight", part.first_stage() ? part.vocab_rows : none);
  for (uint32_t i = part.layers.begin; i < part.layers.end; ++i) plan_layer(i);
  out_->output_norm_ = vector("output_norm.weight");
  if (tied && part.first_stage()) {
    out_->output_ = out_->embedding_;
  } else {
    out_->output_ = matrix(tied ? "token_embd.weight" : "output.weight",
                           part.last_stage() ? part.vocab_rows : none);
  }
}

void LlamaWeights::Loader::place(PackedMatrix& matrix) const {
  matrix.data = out_->memory_.data() + reinterpret_cast<std::size_t>(matrix.data);
}

void LlamaWeights::Loader::place_all() {
  place(out_->embedding_);
  place(out_->output_);
  for (PackedMatrix& part : qkv_) place(part);
  auto part = qkv_.begin();
  for (LlamaLayer& layer : out_->layers_) {
    layer.qkv = LinearGroup(std::vector<PackedMatrix>(part, part + 3));
    part += 3;
    for (PackedMatrix* m : {&layer.attention_out, &layer.gate, &layer.up, &layer.down}) place(*m);
  }
}

void LlamaWeights::Loader::pack(Team& team, const Progress& progress) {
  std::atomic<std::size_t> next{0};
  std::atomic<uint64_t> done{0};
  team.run([&](int thread, int) {
    for (std::size_t i = next++; i < jobs_.size(); i = next++) {
      const Job& job = jobs_[i];
      pack_weights(job.type, job.rows, job.cols, job.source, out_->memory_.data() + job.offset,
                   job.tile_begin, job.tile_end);
      done += job.bytes;
      if (thread == 0 && progress) progress(done, bytes_);
    }
  });
  if (progress) progress(bytes_, bytes_);
}

Result<std::shared_ptr<const LlamaWeights>> LlamaWeights::Loader::load(Compute& compute,
                                                                       const Progress& progress) {
  Result<ModelConfig> config = read_model_config(file_);
  if (!config) return config.error();
  out_->config_ = std::move(*config);
  const Result<ModelPart> part = part_of_model(out_->config_, of_);
  if (!part) return part.error();
  out_->part_ = *part;
  const std::string fingerprint = file_.fingerprint();
  out_->model_hash_ = hash64(fingerprint.data(), fingerprint.size());
  plan_model();
  Result<MappedMemory> memory = MappedMemory::allocate(
      bytes_, {"the model '" + out_->config_.name + "'", "use a smaller or more quantised model"});
  if (!memory) return memory.error();
  out_->memory_ = std::move(*memory);
  place_all();
  compute.run([&](Team& team) { pack(team, progress); });
  return std::shared_ptr<const LlamaWeights>(std::move(out_));
}

Result<std::shared_ptr<const LlamaWeights>> LlamaWeights::load(const ModelFile& file,
                                                               Compute& compute,
                                                               const Progress& progress,
                                                               const PartOf& of) {
  return Loader(file, of).load(compute, progress);
}

}  // namespace baton
