#include "runtime/engine/llama_weights.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "kernels/fp_mode.h"
#include "runtime/base/hash.h"
#include "runtime/engine/weights_reader.h"

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

void unpack_vector(const TensorInfo& tensor, const std::byte* source, std::vector<float>& target) {
  target.resize(tensor.elements());
  dequantize_row(dtype_of(tensor.type), source, target.size(), target.data());
}

}  // namespace

// Walks over the model twice: to learn what there is and how large it gets, then to pack it.
class LlamaWeights::Loader {
 public:
  Loader(const ModelFile& file, const PartOf& of) : file_(file), of_(of) {}

  Result<std::shared_ptr<const LlamaWeights>> load(Compute& compute, const Progress& progress);
  Result<std::shared_ptr<const LlamaWeights>> load_beside(const ModelIdentity& served,
                                                          WeightPlans& plans,
                                                          const std::function<bool()>& cancelled);

 private:
  struct Job {  // tiles of one matrix; small enough for a smooth progress bar
    const TensorInfo* tensor;
    std::size_t source;  // first row of the matrix, within the tensor
    DType type;
    std::size_t rows;
    std::size_t cols;
    std::size_t offset;  // of the matrix in memory
    std::size_t tile_begin;
    std::size_t tile_end;
    std::size_t bytes;  // packed
  };

  const TensorInfo& tensor(const std::string& name) const;
  // The next piece of the plan; its data pointer is an offset until place() knows the base.
  PackedMatrix matrix(const std::string& name);
  // A vector that is filled later; `target` stays where it is.
  void vector(const std::string& name, std::vector<float>& target);
  Result<void> read_config();
  void plan_layer(uint32_t index);
  void plan_model();
  Result<void> allocate();
  void place(PackedMatrix& matrix) const;
  void place_all();
  void pack(const Job& job, const std::byte* tensor) const;
  void pack_all(Team& team, const Progress& progress);
  Result<void> fill_beside(const std::function<bool()>& cancelled);

  struct VectorJob {
    const TensorInfo* tensor;
    std::vector<float>* target;
  };

  const ModelFile& file_;
  const PartOf of_;
  std::shared_ptr<LlamaWeights> out_{new LlamaWeights};
  std::vector<PackedMatrix> qkv_;  // three a layer, until place_all()
  std::vector<Job> jobs_;
  std::vector<VectorJob> vectors_;
  std::shared_ptr<const WeightPlan> plan_;  // shared with the cache that it came from
  std::size_t next_piece_ = 0;
  std::size_t bytes_ = 0;
};

const TensorInfo& LlamaWeights::Loader::tensor(const std::string& name) const {
  const TensorInfo* found = file_.tensor(name);
  CHECK_MSG(found != nullptr, name.c_str());  // read_model_config saw it
  return *found;
}

PackedMatrix LlamaWeights::Loader::matrix(const std::string& name) {
  const WeightPiece& piece = plan_->pieces.at(next_piece_++);
  CHECK(piece.tensor == name);
  const Range& rows = piece.rows;
  const TensorInfo& info = tensor(name);
  PackedMatrix out;
  out.type = dtype_of(info.type);
  out.rows = rows.size();
  out.cols = info.columns();
  const std::size_t row = row_bytes(out.type, out.cols);
  CHECK(info.data.size() == row * info.rows() && rows.end <= info.rows());
  const std::size_t source = rows.begin * row;
  constexpr std::size_t kTilesPerJob = 64;
  const std::size_t tile_bytes = packed_tile_bytes(out.type, out.cols);
  for (std::size_t tile = 0; tile < out.tiles(); tile += kTilesPerJob) {
    const std::size_t end = std::min(tile + kTilesPerJob, out.tiles());
    jobs_.push_back({&info, source, out.type, out.rows, out.cols, bytes_, tile, end,
                     (end - tile) * tile_bytes});
  }
  // An offset until the base is known; never dereferenced as such.
  out.data = reinterpret_cast<const std::byte*>(bytes_);
  bytes_ = align64(bytes_ + packed_bytes(out.type, out.rows, out.cols));
  return out;
}

void LlamaWeights::Loader::vector(const std::string& name, std::vector<float>& target) {
  vectors_.push_back({&tensor(name), &target});
}

void LlamaWeights::Loader::plan_layer(uint32_t index) {
  LlamaLayer& layer = out_->layers_.emplace_back();
  vector(layer_tensor(index, "attn_norm"), layer.attention_norm);
  for (const char* part : {"attn_q", "attn_k", "attn_v"}) {
    qkv_.push_back(matrix(layer_tensor(index, part)));
  }
  layer.attention_out = matrix(layer_tensor(index, "attn_output"));
  vector(layer_tensor(index, "ffn_norm"), layer.ffn_norm);
  layer.gate = matrix(layer_tensor(index, "ffn_gate"));
  layer.up = matrix(layer_tensor(index, "ffn_up"));
  layer.down = matrix(layer_tensor(index, "ffn_down"));
}

void LlamaWeights::Loader::plan_model() {
  const ModelPart& part = out_->part_;
  const bool tied = out_->identity_.config.tied;
  out_->embedding_ = matrix("token_embd.weight");
  out_->layers_.reserve(part.layers.size());  // vectors_ points into them
  for (uint32_t i = part.layers.begin; i < part.layers.end; ++i) plan_layer(i);
  vector("output_norm.weight", out_->output_norm_);
  const bool serves_both = tied && part.first_stage();
  out_->output_ =
      serves_both ? out_->embedding_ : matrix(tied ? "token_embd.weight" : "output.weight");
  CHECK(next_piece_ == plan_->pieces.size());
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

// `tensor`: the bytes of the whole tensor.
void LlamaWeights::Loader::pack(const Job& job, const std::byte* tensor) const {
  pack_weights(job.type, job.rows, job.cols, tensor + job.source, out_->memory_.data() + job.offset,
               job.tile_begin, job.tile_end);
}

void LlamaWeights::Loader::pack_all(Team& team, const Progress& progress) {
  std::atomic<std::size_t> next{0};
  std::atomic<uint64_t> done{0};
  team.run([&](int thread, int) {
    for (std::size_t i = next++; i < jobs_.size(); i = next++) {
      pack(jobs_[i], jobs_[i].tensor->data.data());
      done += jobs_[i].bytes;
      if (thread == 0 && progress) progress(done, bytes_);
    }
  });
  if (progress) progress(bytes_, bytes_);
}

// Tensor by tensor, in the order of the file.
Result<void> LlamaWeights::Loader::fill_beside(const std::function<bool()>& cancelled) {
  const FpModeScope fp_mode;  // as on the compute threads
  Result<WeightsReader> reader = WeightsReader::open(file_);
  if (!reader) return reader.error();
  for (const TensorInfo& tensor : file_.tensors()) {
    if (cancelled()) return Error{ErrorCode::cancelled, "the preparation was called off"};
    const Result<std::span<const std::byte>> bytes = reader->read(tensor);
    if (!bytes) return bytes.error();
    for (const Job& job : jobs_) {
      if (job.tensor == &tensor) pack(job, bytes->data());
    }
    for (const VectorJob& job : vectors_) {
      if (job.tensor == &tensor) unpack_vector(tensor, bytes->data(), *job.target);
    }
  }
  out_->digest_ = reader->digest();
  return {};
}

Result<void> LlamaWeights::Loader::read_config() {
  Result<ModelConfig> config = read_model_config(file_);
  if (!config) return config.error();
  out_->identity_.config = std::move(*config);
  out_->identity_.tokenizer = tokenizer_digest(file_);
  const Result<ModelPart> part = part_of_model(out_->identity_.config, of_);
  if (!part) return part.error();
  out_->part_ = *part;
  return {};
}

Result<void> LlamaWeights::Loader::allocate() {
  Result<MappedMemory> memory = MappedMemory::allocate(
      bytes_,
      {"the model '" + out_->identity_.config.name + "'", "use a smaller or more quantised model"});
  if (!memory) return memory.error();
  out_->memory_ = std::move(*memory);
  place_all();
  return {};
}

Result<std::shared_ptr<const LlamaWeights>> LlamaWeights::Loader::load(Compute& compute,
                                                                       const Progress& progress) {
  if (Result<void> read = read_config(); !read) return read.error();
  plan_ = std::make_shared<const WeightPlan>(plan_weights(out_->identity_.config, out_->part_));
  const std::string fingerprint = file_.fingerprint();
  out_->model_hash_ = hash64(fingerprint.data(), fingerprint.size());
  plan_model();
  if (Result<void> allocated = allocate(); !allocated) return allocated.error();
  for (const VectorJob& job : vectors_) {
    unpack_vector(*job.tensor, job.tensor->data.data(), *job.target);
  }
  compute.run([&](Team& team) { pack_all(team, progress); });
  return std::shared_ptr<const LlamaWeights>(std::move(out_));
}

Result<std::shared_ptr<const LlamaWeights>> LlamaWeights::Loader::load_beside(
    const ModelIdentity& served, WeightPlans& plans, const std::function<bool()>& cancelled) {
  if (Result<void> read = read_config(); !read) return read.error();
  if (Result<void> same = check_same_model(served, out_->identity_, file_.path()); !same) {
    return same.error();
  }
  const WeightPlans::Planned planned = plans.plan(out_->identity_.config, out_->part_);
  plan_ = planned.plan;
  out_->plan_reused_ = planned.reused;
  plan_model();
  if (Result<void> allocated = allocate(); !allocated) return allocated.error();
  if (Result<void> filled = fill_beside(cancelled); !filled) return filled.error();
  return std::shared_ptr<const LlamaWeights>(std::move(out_));
}

Result<std::shared_ptr<const LlamaWeights>> LlamaWeights::load(const ModelFile& file,
                                                               Compute& compute,
                                                               const Progress& progress,
                                                               const PartOf& of) {
  return Loader(file, of).load(compute, progress);
}

Result<std::shared_ptr<const LlamaWeights>> LlamaWeights::load_beside(
    const ModelFile& file, const ModelIdentity& served, WeightPlans& plans,
    const std::function<bool()>& cancelled, const PartOf& of) {
  return Loader(file, of).load_beside(served, plans, cancelled);
}

}  // namespace baton
