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
  explicit Loader(const ModelFile& file) : file_(file) {}

  Result<std::shared_ptr<const LlamaWeights>> load(Compute& compute, const Progress& progress);

 private:
  struct Job {  // tiles of one matrix; small enough for a smooth progress bar
    const TensorInfo* tensor;
    DType type;
    std::size_t offset;  // of the matrix in memory
    std::size_t tile_begin;
    std::size_t tile_end;
    std::size_t bytes;  // packed
  };

  const TensorInfo& tensor(const std::string& name) const;
  // Plans a matrix; its data pointer is an offset until place() knows the base address.
  PackedMatrix matrix(const std::string& name);
  std::vector<float> vector(const std::string& name) const;
  void plan_layers();
  void place(PackedMatrix& matrix) const;
  void place_all();
  void pack(Team& team, const Progress& progress);

  const ModelFile& file_;
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

PackedMatrix LlamaWeights::Loader::matrix(const std::string& name) {
  const TensorInfo& info = tensor(name);
  PackedMatrix out;
  out.type = dtype_of(info.type);
  out.rows = info.rows();
  out.cols = info.columns();
  CHECK(info.data.size() == row_bytes(out.type, out.cols) * out.rows);
  constexpr std::size_t kTilesPerJob = 64;
  const std::size_t tile_bytes = packed_tile_bytes(out.type, out.cols);
  for (std::size_t tile = 0; tile < out.tiles(); tile += kTilesPerJob) {
    const std::size_t end = std::min(tile + kTilesPerJob, out.tiles());
    jobs_.push_back({&info, out.type, bytes_, tile, end, (end - tile) * tile_bytes});
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

void LlamaWeights::Loader::plan_layers() {
  out_->embedding_ = matrix("token_embd.weight");
  for (uint32_t i = 0; i < out_->config_.layers; ++i) {
    LlamaLayer& layer = out_->layers_.emplace_back();
    layer.attention_norm = vector(layer_tensor(i, "attn_norm"));
    for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
      qkv_.push_back(matrix(layer_tensor(i, part)));
    }
    layer.attention_out = matrix(layer_tensor(i, "attn_output"));
    layer.ffn_norm = vector(layer_tensor(i, "ffn_norm"));
    layer.gate = matrix(layer_tensor(i, "ffn_gate"));
    layer.up = matrix(layer_tensor(i, "ffn_up"));
    layer.down = matrix(layer_tensor(i, "ffn_down"));
  }
  out_->output_norm_ = vector("output_norm.weight");
  out_->output_ = out_->config_.tied ? out_->embedding_ : matrix("output.weight");
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
      pack_weights(job.type, job.tensor->rows(), job.tensor->columns(), job.tensor->data.data(),
                   out_->memory_.data() + job.offset, job.tile_begin, job.tile_end);
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
  const std::string fingerprint = file_.fingerprint();
  out_->model_hash_ = hash64(fingerprint.data(), fingerprint.size());
  plan_layers();
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
                                                               const Progress& progress) {
  return Loader(file).load(compute, progress);
}

}  // namespace baton
