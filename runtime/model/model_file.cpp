#include "runtime/model/model_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/model/gguf_parser.h"
#include "runtime/model/model_fault.h"
#include "runtime/model/model_hash.h"

namespace baton {
namespace {

// Owns one read-only mapping of a file, and its entry in the table of the fault handler.
class Mapping {
 public:
  Mapping() = default;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  ~Mapping() {
    if (base_ == nullptr) return;
    forget_mapping(base_);
    ::munmap(base_, size_);
  }

  Result<void> map(const std::string& path) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return failed(path, "cannot be opened");
    const Result<void> result = map_descriptor(fd, path);
    ::close(fd);
    return result;
  }

  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(base_), size_}; }

 private:
  static Error failed(const std::string& path, const char* what) {
    return Error{ErrorCode::not_found, fmt::format("{}: {}: {}", path, what, std::strerror(errno))};
  }

  Result<void> map_descriptor(int fd, const std::string& path) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) return failed(path, "cannot be examined");
    if (!S_ISREG(status.st_mode)) {
      return Error{ErrorCode::not_found,
                   fmt::format("{}: is not a regular file; expected a GGUF model file", path)};
    }
    if (status.st_size == 0) {
      return bad_model(path, 0, "the file", "0 bytes", "a GGUF model (an interrupted download?)");
    }
    const auto size = static_cast<std::size_t>(status.st_size);
    void* base = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED) return failed(path, "cannot be mapped");
    base_ = base;
    size_ = size;
    remember_mapping(base_, size_, path);
    return {};
  }

  void* base_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace

struct ModelFile::State {
  std::string path;
  Mapping mapping;               // of `open`
  std::vector<std::byte> owned;  // of `from_bytes`
  std::span<const std::byte> bytes;
  GgufIndex index;
};

ModelFile::ModelFile(std::unique_ptr<State> state) : state_(std::move(state)) {}
ModelFile::ModelFile(ModelFile&&) noexcept = default;
ModelFile& ModelFile::operator=(ModelFile&&) noexcept = default;
ModelFile::~ModelFile() = default;

Result<ModelFile> ModelFile::open(const std::string& path) {
  auto state = std::make_unique<State>();
  state->path = path;
  if (Result<void> mapped = state->mapping.map(path); !mapped) return mapped.error();
  state->bytes = state->mapping.bytes();
  Result<GgufIndex> index = parse_gguf(state->bytes, path);
  if (!index) return index.error();
  state->index = std::move(index).value();
  return ModelFile(std::move(state));
}

Result<ModelFile> ModelFile::from_bytes(std::vector<std::byte> bytes, std::string name) {
  auto state = std::make_unique<State>();
  state->path = std::move(name);
  state->owned = std::move(bytes);
  state->bytes = state->owned;
  Result<GgufIndex> index = parse_gguf(state->bytes, state->path);
  if (!index) return index.error();
  state->index = std::move(index).value();
  return ModelFile(std::move(state));
}

const std::string& ModelFile::path() const {
  return state_->path;
}
std::uint64_t ModelFile::size_bytes() const {
  return state_->bytes.size();
}
std::uint32_t ModelFile::version() const {
  return state_->index.version;
}
std::uint64_t ModelFile::alignment() const {
  return state_->index.alignment;
}
std::uint64_t ModelFile::data_offset() const {
  return state_->index.data_offset;
}
const std::vector<MetaValue>& ModelFile::metadata() const {
  return state_->index.metadata;
}
const std::vector<TensorInfo>& ModelFile::tensors() const {
  return state_->index.tensors;
}

const MetaValue* ModelFile::find(std::string_view key) const {
  const auto found = state_->index.metadata_by_key.find(key);
  return found == state_->index.metadata_by_key.end() ? nullptr
                                                      : &state_->index.metadata[found->second];
}

const TensorInfo* ModelFile::tensor(std::string_view name) const {
  const auto found = state_->index.tensor_by_name.find(name);
  return found == state_->index.tensor_by_name.end() ? nullptr
                                                     : &state_->index.tensors[found->second];
}

std::string ModelFile::fingerprint() const {
  return fingerprint_of(state_->bytes, state_->index.data_offset, state_->index.tensors);
}

}  // namespace baton
